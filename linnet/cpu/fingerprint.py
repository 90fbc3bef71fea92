"""A fingerprint of numbers in memory, in LLVM: it shows whether they have changed, and is quick to compute.

Words of 32 bits are mixed into the lanes of a few vectors, one after the other:

    lane = rotate(lane ^ word, TURN) * ODD

Each such step can be undone. So a change of one word of a lane always changes the fingerprint, and changes of
several words of one lane cancel with a probability of 2^-32. Multiplication carries between the bits, so that
regular changes, such as another sign of every number, do not cancel either.
"""

from __future__ import annotations

from llvmlite import ir

from linnet.cpu.gemm import I32, I64, loop, repeated

# Vectors that are mixed independently of each other: a step waits for the one before it.
CHAINS = 8
TURN, ODD, START = 13, 0x9E3779B1, 0x85EBCA77


class Fingerprint:
    """Emits the fingerprint of `words` words from `address` on, a vector of `lanes` words."""

    def __init__(self, build: ir.IRBuilder, lanes: int):
        self.build, self.lanes = build, lanes
        self.vector = ir.VectorType(I32, lanes)

    def emit(self, address: ir.Value, words: ir.Value) -> ir.Value:
        build, at_once = self.build, CHAINS * self.lanes
        start = constant(self.vector, START)
        whole = build.sub(words, build.urem(words, I64(at_once)))
        vectors = build.sub(words, build.urem(words, I64(self.lanes)))
        chains = self.mixed(address, (I64(0), whole), [start] * CHAINS)
        (rest,) = self.mixed(address, (whole, vectors), [start])
        (last,) = self.mixed(address, (vectors, words), [I32(START)])
        for chain in (rest, repeated(build, last, self.lanes), *chains[1:]):
            chains[0] = self.mix(chains[0], chain)
        return chains[0]

    def mixed(
        self, address: ir.Value, words: tuple[ir.Value, ir.Value], chains: list[ir.Value]
    ) -> list[ir.Value]:
        """Mix a range of words into the chains, which are vectors or single words, in turn."""
        build, kind = self.build, chains[0].type
        wide = kind.count if isinstance(kind, ir.VectorType) else 1
        with build.goto_entry_block():
            slots = [build.alloca(kind) for _ in chains]  # LLVM keeps them in registers
        for slot, chain in zip(slots, chains, strict=True):
            build.store(chain, slot)
        with loop(build, *words, I64(wide * len(chains))) as at:
            for i, slot in enumerate(slots):
                place = build.gep(address, [build.add(at, I64(i * wide))], source_etype=I32)
                build.store(self.mix(build.load(slot, typ=kind), build.load(place, align=4, typ=kind)), slot)
        return [build.load(slot, typ=kind) for slot in slots]

    def mix(self, chain: ir.Value, word: ir.Value) -> ir.Value:
        build, kind = self.build, chain.type
        many = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name, module = f"llvm.fshl.{many}i32", build.module
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
        joined = build.xor(chain, word)
        turned = build.call(module.globals[name], [joined, joined, constant(kind, TURN)])
        return build.mul(turned, constant(kind, ODD))


def constant(kind: ir.Type, number: int) -> ir.Constant:
    return ir.Constant(kind, [I32(number)] * kind.count if isinstance(kind, ir.VectorType) else number)
