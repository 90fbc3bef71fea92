"""The list of projects: what to install, and which line of a program Linnet changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Project:
    """A library that is used with recurrent layers."""

    name: str
    requirements: tuple[str, ...]  # pinned; the first is the project itself
    line: str  # what the user writes; `cases/` has the program
    minutes: float = 5  # the time limit of a process
    has_tests: bool = False  # whether the case runs tests that are in the source distribution
    unavailable: str = ""  # why the project cannot run here
    has_dependencies: bool = True  # False: only `requirements` are installed, not what these require

    @property
    def version(self) -> str:
        return self.requirements[0].partition("==")[2]

    @property
    def case(self) -> str:
        return f"tools.compat.cases.{self.name.replace('-', '_')}"


MODULE = "self.rnn = linnet.LSTM(8, 64, num_layers=2, batch_first=True)"
TORCH = "torch.nn.LSTM = linnet.LSTM"
FORECASTING = "pytorch_forecasting.models.nn.rnn.LSTM = linnet.contrib.forecasting.LSTM"

# The most popular first.
LIST = (
    Project("torch", ("torch==2.13.0", "expecttest==0.3.0", "hypothesis==6.170.15"), MODULE),
    Project("transformers", ("transformers==5.22.2", "accelerate==1.15.0"), MODULE),
    Project("lightning", ("lightning==2.6.6",), MODULE),
    Project("accelerate", ("accelerate==1.15.0",), MODULE),
    Project("flair", ("flair==0.15.1",), TORCH),
    Project("speechbrain", ("speechbrain==1.1.2",), TORCH),
    Project("darts", ("darts==0.48.1", "pytorch-lightning==2.6.6"), TORCH),
    Project("skorch", ("skorch==1.4.0",), MODULE),
    Project("pytorch-forecasting", ("pytorch-forecasting==1.8.0",), FORECASTING),
    Project("torchrl", ("torchrl==0.14.1", "gymnasium==1.4.0"), "LSTMModule(lstm=linnet.LSTM(...), ...)"),
    Project(
        "sb3-contrib",
        ("sb3-contrib==2.9.2",),
        "RecurrentPPO(linnet.contrib.sb3.MlpPolicy, ...)",
        has_tests=True,
    ),
    Project(
        "sru",
        ("sru==2.6.0", "ninja==1.13.0"),
        "rnn = linnet.SRU(8, 64, num_layers=2, rescale=False)",
        minutes=10,
    ),
    Project(
        "mingru-pytorch", ("minGRU-pytorch==0.2.1",), "rnn = linnet.MinGRU(64, 64, num_layers=2, bias=False)"
    ),
    Project("xlstm", ("xlstm==2.0.6",), "self.rnn = linnet.SLSTMBlock(64, heads=4)"),
    Project("ncps", ("ncps==1.0.1",), "rnn = linnet.CfC(64, 64, batch_first=True)"),
    Project("recurrentgemma", ("recurrentgemma==1.0.1",), "self.rnn = linnet.GriffinBlock(64, heads=4)"),
    Project("allennlp-light", ("allennlp-light==1.0.0",), "PytorchSeq2SeqWrapper(linnet.LSTM(...))"),
    Project("torchrecurrent", ("torchrecurrent==0.2.5",), "self.rnn = linnet.RAN(8, 64, num_layers=2)"),
)
PROJECTS = {project.name: project for project in LIST}


@dataclass(frozen=True)
class Model(Project):
    """A model of a project, for the table of docs/convert.md."""

    does: str = ""  # what is timed
    weights: str = "random"  # where its weights come from
    way: str = "torch"  # how the project itself runs it

    @property
    def case(self) -> str:
        return f"tools.compat.models.{self.name.replace('-', '_').lower()}"


def model(name: str, *requirements: str, line: str = "linnet.convert(model)", **options: Any) -> Model:
    return Model(name, requirements, line, **options)


def model_alone(name: str, *requirements: str, **options: Any) -> Model:
    """Without what the package requires: another torch, or much that it needs for other things."""
    return model(name, *requirements, has_dependencies=False, **options)


# What reads and runs ONNX files.
RUNTIME = ("onnxruntime==1.31.1",)
READER = ("onnx==1.23.2", "protobuf==7.36.2", "ml_dtypes==0.6.0", *RUNTIME)
MODELS = {
    each.name: each
    for each in (
        model_alone(
            "silero-vad",
            *("silero-vad==6.2.3", *RUNTIME),
            does="voice detector, 16 s of audio",
            weights="its own",
            way="ONNX Runtime, a block of frames",
        ),
        model_alone(
            "silero-vad-onnx",
            *("silero-vad==6.2.3", *READER),
            line="model = linnet.read_model(file)",
            does="the same from the package's ONNX file",
            weights="its own",
            way="ONNX Runtime, a block of frames",
        ),
        model_alone(
            "ddddocr",
            *("ddddocr==1.6.1", "pillow==13.0.0", *READER),
            line="model = linnet.read_model(file)",
            does="reader of a line of text, 64 x 320 pixels",
            weights="its own",
            way="ONNX Runtime",
        ),
        model_alone(
            "Resemblyzer",
            "Resemblyzer==0.1.4",
            line="linnet.convert(encoder)",
            does="voice encoder, 20 pieces of 1.6 s",
            weights="its own",
        ),
        model_alone(
            "g2p-en",
            "g2p-en==2.1.0",
            does="pronunciation of 16 English words, in one batch",
            weights="its own",
            way="NumPy, word by word",
        ),
        model_alone(
            "g2pM",
            "g2pM==0.1.2.5",
            does="readings in a sentence of 40 Chinese characters",
            weights="its own",
            way="NumPy",
        ),
        model_alone(
            "deepfilternet",
            *("deepfilternet==0.5.6", "deepfilterlib==0.5.6", "loguru==0.7.3"),
            does="DeepFilterNet3, 4 s of audio",
        ),
        model_alone("openunmix", "openunmix==1.3.0", does="separator of music, 6 s of audio"),
        model_alone("easyocr", "easyocr==1.7.2", does="reader of a line of text, 64 x 600 pixels"),
        model("stanza", "stanza==1.15.0", does="tokenizer, 8 paragraphs"),
        model("flair", "flair==0.15.1", line="linnet.convert(tagger)", does="tagger, 32 sentences"),
        model(
            "neuralforecast",
            "neuralforecast==3.3.0",
            does="forecasts of 16 series from 100 values",
            weights="trained here",
        ),
        model(
            "sb3-contrib",
            "sb3-contrib==2.9.2",
            line="linnet.convert(ppo.policy)",
            does="policy of RecurrentPPO, 16 sequences of 64 steps",
            weights="trained here",
        ),
        model_alone(
            "rsl-rl-lib",
            *("rsl-rl-lib==5.5.1", "tensordict==0.15.3", "pyvers==0.2.3", "cloudpickle==3.1.2"),
            line="linnet.convert(policy)",
            does="policy of robots, 24 steps of 64 environments",
            weights="trained here",
        ),
    )
}
