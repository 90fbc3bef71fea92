"""Exported models on emulated microcontrollers: their outputs, and that instructions are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
from tools import microcontroller
from tools.microcontroller import ARITHMETIC, COMPILER, PROCESSORS, Exported
from tools.run_steps import STRICT, checked

pytestmark = pytest.mark.skipif(
    microcontroller.missing() is not None, reason=microcontroller.missing() or "all is installed"
)

# A model whose step is a loop of two instructions, 50,000 times.
HEADER = """
#include <stdint.h>
#define MODEL_INPUT_SIZE 1
#define MODEL_OUTPUT_SIZE 1
typedef struct { int16_t count; } model_state;
typedef struct { char unused; } model_scratch;
void model_init(model_state *state);
void model_step(model_state *state, model_scratch *scratch, const int16_t *input, int16_t *output);
"""
SOURCE = """
#include "model.h"
void model_init(model_state *state) { state->count = 0; }
void model_step(model_state *state, model_scratch *scratch, const int16_t *input, int16_t *output)
{
    int left = 50000;
    (void)scratch;
    __asm__ volatile("1: subs %0, #1\\n\\tbne 1b" : "+r"(left) : : "cc");
    *output = (int16_t)(*input + state->count++);
}
"""


@pytest.mark.parametrize("processor", PROCESSORS)
def test_instructions_are_counted(processor: str, tmp_path: Path):
    (tmp_path / "model.h").write_text(HEADER)
    (tmp_path / "model.c").write_text(SOURCE)
    inputs = np.arange(microcontroller.STEPS, dtype=np.int16)[:, None]
    made = Exported(tmp_path, inputs, 2 * inputs, 1.0)
    microcontroller.compile_model(made, PROCESSORS[processor], "soft")
    count, outputs = microcontroller.run_model(made, PROCESSORS[processor])
    assert 100_000 < count < 100_030
    assert np.array_equal(outputs, made.outputs)


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_outputs_on_a_cortex_are_those_of_python(arithmetic: str):
    """In whole numbers they are equal, which `measure` checks. 13 channels leave rows and columns over."""
    torch.manual_seed(0)
    result = microcontroller.measure("GRU", linnet.GRU(10, 13).eval(), arithmetic, "Cortex-M4")
    assert result.difference < (1e-5 if "float32" in arithmetic else 0.02)
    assert 0 < result.memory < result.flash


def test_compilers_for_arm_have_nothing_to_say(tmp_path: Path):
    torch.manual_seed(0)
    small = linnet.quantize_integer(linnet.LSTM(10, 13), torch.randn(20, 2, 10))
    folder = linnet.export_c(small, tmp_path / "c")
    for processor in ("cortex-m0", "cortex-m4"):
        options = ("-O3", "-mthumb", f"-mcpu={processor}", "-mfloat-abi=soft")
        checked([COMPILER, *STRICT, *options, "-c", "model.c"], folder=folder)
