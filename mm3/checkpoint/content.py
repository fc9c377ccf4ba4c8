"""What kind of file it is by its first bytes, whatever its name: the blobs of a Hugging Face cache have no suffix."""

from collections.abc import Callable
from pathlib import Path

from .errors import CheckpointError
from .files import StoredTensor, read_safetensors_header
from .gguf import read_gguf
from .pickled import read_pickled_header

_FIRST = 64

_READERS: tuple[tuple[bytes, Callable[[Path], dict[str, StoredTensor]]], ...] = (
    (b"GGUF", read_gguf),
    (b"PK\x03\x04", read_pickled_header),  # the zip archive that torch.save writes
)
# First bytes in lower case -> what it is and what to do.
_REFUSED = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for. Run git lfs pull, or download it."),
    (b"<", "a web page, not a model: the link was wrong or asked for a login. Download it again."),
    (b"{", "a JSON text, not a model. Choose the file with the weights."),
    (b"\x80", "a pickle of an old kind, which could run code. Take a .safetensors file."),
    (b"\x1f\x8b", "a compressed archive. Unpack it."),
    (b"7z\xbc\xaf", "a compressed archive. Unpack it."),
    (b"rar!", "a compressed archive. Unpack it."),
)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and dtypes of the tensors in a file; no tensor data is read.

    Raises:
        CheckpointError: If the file is of no kind that is read here, or not whole.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_FIRST)
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({error.strerror}). Check its permissions.") from error
    if not start:
        raise CheckpointError(f"{path.name} is empty (0 bytes): its download never began. Download it again.")
    for magic, reader in _READERS:
        if start.startswith(magic):
            return reader(path)
    refusal = _refusal(start)
    if refusal is not None:
        raise CheckpointError(f"{path.name} is {refusal}")
    return read_safetensors_header(path)


def _refusal(start: bytes) -> str | None:
    """What the file is, if it is none of ours. A safetensors file begins with the length of its header, and that."""
    if start[4:9] == b"\0\0\0\0{":
        return None
    text = start.lstrip().lower()
    known = next((what for magic, what in _REFUSED if text.startswith(magic)), None)
    if known is None and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start):
        return f"a text file that begins with {start[:24].decode('ascii')!r}, not a model. Download it again."
    return known
