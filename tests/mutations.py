"""Files broken in ways drawn from a seed: bytes, lengths, numbers, structure. Endless, and the same every time."""

import io
import json
import random
import zipfile

_NUMBERS = [0, 1, 3, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30]
_VALUES = [*_NUMBERS, *(-n for n in _NUMBERS), 0.5, None, True, "", "F16", "I8", "\ud800", "../x", "a" * 300, [], {}]
_DEEP = "[" * 20_000


def cut(content: bytes, draw: random.Random) -> bytes:
    """The beginning of it."""
    return content[: draw.randrange(len(content))]


def bytes_changed(content: bytes, draw: random.Random, start: int = 0, end: int | None = None) -> bytes:
    """A few bytes other than they were, or bytes added or taken away, between `start` and `end`."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5, 20])):
        place = draw.randrange(start, min(end or len(content), len(changed)))
        kind = draw.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[place] = draw.choice([0, 255, 34, 44, 48, 57, 91, 93, 123, 125, draw.randrange(256)])
        elif kind == 2:
            del changed[place : place + draw.randrange(1, 9)]
        else:
            changed[place:place] = draw.randbytes(draw.randrange(1, 9))
    return bytes(changed)


def json_changed(text: str, draw: random.Random) -> str:
    """A value in it replaced, removed, renamed or repeated, or all of it nested too deeply."""
    if draw.random() < 0.02:
        return draw.choice([_DEEP, '{"weight_map":' + _DEEP, "9" * 5000, "NaN", '{"a": Infinity}'])
    tree = json.loads(text)
    holders = [tree]
    for holder in holders:
        holders += [value for value in _items(holder) if isinstance(value, dict | list)]
    holder = draw.choice([holder for holder in holders if len(holder)] or [tree])
    key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    kind = draw.randrange(4)
    if kind == 0:
        holder[key] = draw.choice(_VALUES)
    elif kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, dict):
        holder[str(draw.choice(_VALUES))] = holder.pop(key)
    elif isinstance(holder, list):
        holder.append(holder[key])
    elif isinstance(holder[key], int):
        holder[key] += draw.choice([-8, -4, -1, 1, 4, 8])
    return json.dumps(tree)


def _items(holder):
    return list(holder.values()) if isinstance(holder, dict) else holder


def safetensors_mutations(content: bytes, seed: int):
    """The header changed as bytes, as numbers or as structure, or the file cut."""
    length = int.from_bytes(content[:8], "little")
    text, data = content[8 : 8 + length].decode(), content[8 + length :]
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    while True:
        kind = draw.randrange(4)
        if kind == 0:
            yield cut(content, draw)
        elif kind == 1:
            yield bytes_changed(content, draw, 0, 8 + length)
        elif kind == 2:
            yield draw.choice([draw.randrange(2**64), *map(abs, _NUMBERS[:11])]).to_bytes(8, "little") + content[8:]
        else:
            changed = json_changed(text, draw).encode("utf-8", "surrogatepass")
            yield len(changed).to_bytes(8, "little") + changed + data


def index_mutations(content: bytes, seed: int):
    """The text changed as bytes or as structure, or cut."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    while True:
        kind = draw.randrange(3)
        if kind == 0:
            yield cut(content, draw)
        elif kind == 1:
            yield bytes_changed(content, draw)
        else:
            yield json_changed(content.decode(), draw).encode("utf-8", "surrogatepass")


def zip_mutations(contents: list[bytes], seed: int):
    """Archive or pickle changed as bytes, in place or written anew, or the file cut."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    parts = [_records(content) for content in contents]
    while True:
        which = draw.randrange(len(contents))
        content, records = contents[which], parts[which]
        kind = draw.randrange(4)
        if kind == 0:
            yield cut(content, draw)
        elif kind == 1:
            yield bytes_changed(content, draw, 0, 200)
        elif kind == 2:
            yield bytes_changed(content, draw, content.index(b"PK\x01\x02"))
        else:
            pickled = next(name for name in records if name.endswith("data.pkl"))
            yield _archive(records | {pickled: bytes_changed(records[pickled], draw)})


def _records(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(records: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, value in records.items():
            archive.writestr(name, value)
    return held.getvalue()
