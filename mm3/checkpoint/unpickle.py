"""A pickle read as data: a machine that knows what `torch.save` writes for a dict of tensors, and nothing else.

It imports nothing and calls nothing that a pickle names, so there is nothing that a pickle could run.
"""

import pickletools
from collections.abc import Callable

from .errors import shown
from .pickle_names import CALLS, Global, PickleError, TensorView, storage

_FAULTS = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)


def tensors_of_pickle(data: bytes) -> dict[str, TensorView]:
    """The tensors of a pickled state dict by name.

    Raises:
        PickleError: If it is anything else.
    """
    try:
        value = _Machine().run(data)
    except PickleError:
        raise
    except _FAULTS as error:
        raise PickleError(f"it is damaged ({error})") from error
    if not isinstance(value, dict):
        raise PickleError("it holds no dict")
    for name, tensor in value.items():
        if not isinstance(tensor, TensorView):
            raise PickleError(f"{shown([name])} is no tensor")
    return value


class _Machine:
    """The stack, the marks and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self, data: bytes) -> object:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[operation.name])
            elif operation.name in _PUSHED:
                self.stack.append(argument)
            elif operation.name in _OPERATIONS:
                _OPERATIONS[operation.name](self, argument)
            elif operation.name not in _NOTHING:
                raise PickleError(f"it uses {operation.name}, which builds other objects")
        return self.stack.pop()

    def since_mark(self) -> tuple[object, ...]:
        start = self.marks.pop()
        items = tuple(self.stack[start:])
        del self.stack[start:]
        return items

    def mark(self, _: object) -> None:
        self.marks.append(len(self.stack))

    def new_dict(self, _: object) -> None:
        self.stack.append({})

    def name(self, argument: object) -> None:
        self.stack.append(Global(str(argument)))

    def stack_name(self, _: object) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Global(f"{module} {name}" if isinstance(module, str) and isinstance(name, str) else "?"))

    def tuple_since_mark(self, _: object) -> None:
        self.stack.append(self.since_mark())

    def short_tuple(self, length: int) -> None:
        items = tuple(self.stack[len(self.stack) - length :])
        if len(items) < length:
            raise PickleError("it is damaged")
        del self.stack[len(self.stack) - length :]
        self.stack.append(items)

    def persistent(self, _: object) -> None:
        parts = self.stack.pop()
        if not isinstance(parts, tuple):
            raise PickleError("a storage is of no kind that torch.save writes for tensors")
        self.stack.append(storage(*parts))

    def reduce(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or function.name not in CALLS or not isinstance(arguments, tuple):
            called = function.name if isinstance(function, Global) else "something"
            raise PickleError(f"it calls {shown([called])}")
        self.stack.append(CALLS[function.name](*arguments))

    def build(self, _: object) -> None:
        self.stack.pop()  # attributes of an ordered dict, such as the versions of modules
        if not isinstance(self.stack[-1], dict):
            raise PickleError("it sets attributes of an object")

    def set_items(self, items: tuple[object, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise PickleError("it fills something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise PickleError("a tensor's name is no text")
            target[key] = value

    def set_item(self, _: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items((key, value))

    def put(self, index: object) -> None:
        self.memo[len(self.memo) if index is None else int(str(index))] = self.stack[-1]

    def get(self, index: object) -> None:
        self.stack.append(self.memo[int(str(index))])


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PUSHED = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_NOTHING = {"PROTO", "FRAME", "STOP"}
_OPERATIONS: dict[str, Callable[[_Machine, object], None]] = {
    "MARK": _Machine.mark,
    "EMPTY_DICT": _Machine.new_dict,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "TUPLE": _Machine.tuple_since_mark,
    "TUPLE1": lambda machine, _: machine.short_tuple(1),
    "TUPLE2": lambda machine, _: machine.short_tuple(2),
    "TUPLE3": lambda machine, _: machine.short_tuple(3),
    "BINPERSID": _Machine.persistent,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "SETITEM": _Machine.set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
}
