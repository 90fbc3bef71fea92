"""Truth: the numbers that the authors' own code produced."""

from pathlib import Path

import pytest
import torch
from golden_cases import CASES, FOLDER, OURS, Vectors, files

TOLERANCE = 1e-10


def close(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE, msg=lambda text: f"{what}: {text}")


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_output_state_and_gradients_are_the_authors(path: Path):
    vectors = Vectors(path)
    y, others = CASES[f"{path.parent.name}/{path.stem}"](vectors)
    close(y, vectors["out"], "output")
    for key, ours in others.items():
        # Files with whole trajectories end in the final state.
        theirs = vectors[key][-1] if key.endswith("_seq") else vectors[key]
        close(ours, theirs, key)
    loss = (y * vectors["R"]).sum()
    close(loss, vectors["loss"], "loss")
    leaves = [vectors[key] for key in vectors.gradients]
    ours = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    for (key, theirs), gradient in zip(vectors.gradients.items(), ours, strict=True):
        close(gradient, theirs, f"gradient of {key}")


def test_the_pseudocode_of_the_sru_paper_is_another_unit():
    """Algorithm 1 lets the reset gate read the new c; equation (3) and the authors' code do not."""
    pseudocode = Vectors(FOLDER / "sru/PAPER_alg1_variant_k3.npz")
    ours, _ = CASES["sru/cell_k3"](Vectors(FOLDER / "sru/cell_k3.npz"))
    assert (ours - pseudocode["out"]).abs().max() > 0.1


def test_every_file_at_hand_is_tried():
    """A file in the folder that no case names would be silently left out."""
    here = {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.npz")}
    # Those of the tasks are tried where their models and optimisers are tested, and newer units in today/.
    today = "".join(path.read_text(encoding="utf-8") for path in (OURS.parent / "today").glob("*.py"))
    here = {name for name in here if not name.startswith("tasks_") and f'"{name.split("/")[0]}"' not in today}
    elsewhere = {"sru/PAPER_alg1_variant_k3"}  # tried below, in the other direction
    whole_models = {name for name in here if name.split("/")[1].startswith(("lm_mos", "lm_step", "task_"))}
    whole_models |= {name for name in here if name.startswith("scrn/") and "tf_cell" not in name}
    assert here - elsewhere - whole_models <= set(CASES)
    assert len(here & set(CASES)) >= 33
