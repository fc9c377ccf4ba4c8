"""What the names mean that `torch.save` writes for a dict of tensors. They are looked up here and never imported."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch


class PickleError(ValueError):
    """A pickle that is not just tensors by name."""


@dataclass(frozen=True)
class TensorView:
    """A tensor in a record of the archive; offset and strides count elements."""

    record: str
    record_bytes: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """Whether the elements lie side by side, in whatever order of the axes."""
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return steps + 1 == prod(self.shape) > 0

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in a row in the order of the axes."""
        rows = [prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        return all(size == 1 or stride == row for size, stride, row in zip(self.shape, self.strides, rows, strict=True))

    @property
    def needed_bytes(self) -> int:
        return (self.offset + prod(self.shape)) * self.dtype.itemsize


@dataclass(frozen=True)
class Global:
    """A module and a name in it, as a pickle spells them: `torch FloatStorage`."""

    name: str


@dataclass(frozen=True)
class Storage:
    """A record of the archive; without a dtype, its elements are bytes."""

    dtype: torch.dtype | None
    record: str
    elements: int


_STORAGES: dict[str, torch.dtype | None] = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
    "torch.storage UntypedStorage": None,
}
_DTYPES = {
    f"torch {name}": getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "int8", "uint8")
}


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise PickleError("a size or stride is no number of elements")
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise PickleError("a shape is no tuple")
    return tuple(map(_size, value))


def storage(kind: object, of: object, record: object, _: object, elements: object) -> Storage:
    """The storage that a persistent id stands for."""
    if kind != "storage" or not isinstance(of, Global) or of.name not in _STORAGES or not isinstance(record, str):
        raise PickleError("a storage is of no kind that torch.save writes for tensors")
    return Storage(_STORAGES[of.name], record, _size(elements))


def _tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> TensorView:
    if not isinstance(storage, Storage) or storage.dtype is None:
        raise PickleError("a tensor has no storage of a known dtype")
    return _view(storage, storage.dtype, storage.elements * storage.dtype.itemsize, offset, shape, strides)


def _tensor_of_dtype(storage: object, offset: object, shape: object, strides: object, *rest: object) -> TensorView:
    _, _, dtype, *_ = rest
    if not isinstance(storage, Storage) or not isinstance(dtype, Global) or dtype.name not in _DTYPES:
        raise PickleError("a tensor has no storage of a known dtype")
    return _view(storage, _DTYPES[dtype.name], storage.elements, offset, shape, strides)


def _view(
    storage: Storage, dtype: torch.dtype, record_bytes: int, offset: object, shape: object, strides: object
) -> TensorView:
    view = TensorView(storage.record, record_bytes, dtype, _size(offset), _sizes(shape), _sizes(strides))
    if len(view.shape) != len(view.strides):
        raise PickleError("a tensor has more sizes than strides, or fewer")
    if not view.dense:
        raise PickleError("a tensor is empty, repeats its elements or leaves gaps")
    return view


def _parameter(tensor: object, *_: object) -> object:
    return tensor


def _ordered(*arguments: object) -> dict[object, object]:
    if arguments:
        raise PickleError("a dict is filled by a call")
    return {}


CALLS: dict[str, Callable[..., object]] = {
    "collections OrderedDict": _ordered,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils _rebuild_parameter": _parameter,
}
