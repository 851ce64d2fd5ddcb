"""A numba type for a run of columns that stays in CPU registers, and prefetching.

Numba has no local arrays, so a sum over neighbours written as a loop over columns goes through
memory for every edge. A value of type `Vector` is one LLVM vector: 64 columns of float32 are eight
AVX2 or four AVX-512 registers, and the compiler splits it to fit the machine. Rows stored as
float16 (uint16 for numba) are widened by the CPU's own conversion while loading.

Arrays are handled as `pointer`s, because numba counts references of arrays for every row.
Positions are in elements. Nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from impact_gnn._native import CACHE_LINE

_INT32 = ir.IntType(32)

# The LLVM type of a type in memory; uint16 stands for float16, which numba does not have.
FLOATS = {
    types.uint16: ir.HalfType(),
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
}


class Vector(types.Type):
    """`width` sums in float32, or in float64 where `double`."""

    def __init__(self, width: int, double: bool) -> None:
        self.width = width
        self.double = double
        super().__init__(name=f"Vector({width}, {self.scalar})")

    @property
    def scalar(self) -> types.Float:
        """The type of the sums."""
        return types.float64 if self.double else types.float32

    def of(self, element: ir.Type | None = None) -> ir.VectorType:
        """The LLVM vector of this width, of `element` or of the type of the sums."""
        if element is None:
            element = FLOATS[self.scalar]
        return ir.VectorType(element, self.width)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.of())


@intrinsic
def pointer(typing, array):  # type: ignore[no-untyped-def]
    """Return the address of a contiguous `array`, which the caller must keep alive."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return cgutils.create_struct_proxy(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def keep(typing, first, second):  # type: ignore[no-untyped-def]
    """Keep two arrays alive until here."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.get_dummy_value()

    return types.void(first, second), generate


@intrinsic(prefer_literal=True)
def zeros(typing, width, array):  # type: ignore[no-untyped-def]
    """A `Vector` of `width` (a literal) zeros that can sum rows of `array`."""
    # Rows of float16 and float32 are summed in float32, of float64 in float64.
    vector = Vector(width.literal_value, array.dtype == types.float64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return ir.Constant(vector.of(), None)

    return vector(width, array), generate


@intrinsic
def add(typing, total, array, position):  # type: ignore[no-untyped-def]
    """`total + array[position : position + width]`."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        row = _load(builder, total, array, args[1], args[2])
        return builder.fadd(args[0], row)

    return total(total, array, types.int64), generate


@intrinsic
def multiply_add(typing, total, factor, array, position):  # type: ignore[no-untyped-def]
    """`total + factor · array[position : position + width]`, rounded once where the CPU can."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        row = _load(builder, total, array, args[2], args[3])
        # LLVM's a·b + c for vectors of this width.
        kind = ir.FunctionType(total.of(), [total.of()] * 3)
        name = f"llvm.fmuladd.v{total.width}f{total.scalar.bitwidth}"
        fused = cgutils.get_or_insert_function(builder.module, kind, name)
        factors = _repeat(builder, total, args[1])
        return builder.call(fused, [factors, row, args[0]])

    return total(total, total.scalar, array, types.int64), generate


@intrinsic
def store(typing, array, position, total, factor):  # type: ignore[no-untyped-def]
    """Write `factor · total` to `array[position : position + width]`, in the type of `array`."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        factors = _repeat(builder, total, args[3])
        value = builder.fmul(args[2], factors)
        if array.dtype != types.float64 and total.double:
            # Sums of a heavy row are float64 whatever the rows are.
            value = builder.fptrunc(value, total.of(ir.FloatType()))
        if array.dtype == types.uint16:
            value = builder.fptrunc(value, total.of(ir.HalfType()))
        elif array.dtype == types.float64 and not total.double:
            value = builder.fpext(value, total.of(ir.DoubleType()))
        where = _address(builder, args[0], args[1], value.type)
        builder.store(value, where).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.int64, total, total.scalar), generate


@intrinsic
def widened(typing, total, array, position):  # type: ignore[no-untyped-def]
    """`total + array[position : position + width]` in float64, `array` being of that type."""
    double = Vector(total.width, True)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        value = args[0]
        if not total.double:
            value = builder.fpext(value, double.of())
        row = _load(builder, double, array, args[1], args[2])
        return builder.fadd(value, row)

    return double(total, array, types.int64), generate


@intrinsic
def prefetch(typing, array, position, total):  # type: ignore[no-untyped-def]
    """Prefetch all cache lines of `array[position : position + width of total]`; never faults."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        size = array.dtype.bitwidth // 8
        # One position per line, and the last column: rows may straddle lines.
        steps = {*range(0, total.width, CACHE_LINE // size), total.width - 1}
        for step in sorted(steps):
            at = builder.add(args[1], ir.Constant(args[1].type, step))
            _prefetch(builder, _address(builder, args[0], at, ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(array, types.int64, total), generate


def _address(builder, value, position, to):  # type: ignore[no-untyped-def]
    place = builder.gep(value, [position])
    return builder.bitcast(place, to.as_pointer())


def _load(builder, total, array, value, position):  # type: ignore[no-untyped-def]
    # Read in the stored type, then widened to that of the sums.
    stored = total.of(FLOATS[array.dtype])
    row = builder.load(_address(builder, value, position, stored))
    row.align = array.dtype.bitwidth // 8  # rows start anywhere
    if row.type == total.of():
        return row
    return builder.fpext(row, total.of())


def _repeat(builder, total, scalar):  # type: ignore[no-untyped-def]
    # LLVM's way to repeat a scalar: put it in lane 0, then copy that lane to all.
    nothing = ir.Constant(total.of(), ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(_INT32, total.width), None)
    )


def _prefetch(builder, address):  # type: ignore[no-untyped-def]
    kind = ir.FunctionType(ir.VoidType(), [address.type, _INT32, _INT32, _INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    # For reading, in all levels of the cache, data and not instructions.
    read, keep, data = (ir.Constant(_INT32, number) for number in (0, 3, 1))
    builder.call(function, [address, read, keep, data])
