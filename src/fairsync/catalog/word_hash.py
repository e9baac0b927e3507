"""Hashes of many words at once: 64 bits for each, from their UTF-8 in pieces of 8 bytes."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

_Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

# Words are hashed this many at a time, which bounds the memory.
_BLOCK = 1 << 17
_PIECE = 8
# The bits of a piece that belong to a word, by the number of its bytes that are left.
_BITS = np.array([(1 << (8 * size)) - 1 for size in range(_PIECE + 1)], dtype=np.uint64)
_FOLD = np.uint64(32)
_ALL_BITS = (1 << 64) - 1
# Of a word with more bytes, a digest is hashed: there is one pass for every 8 bytes of the longest word.
_LONG = 256
# No id has a control character (see `names`), so that an id can begin with neither of these.
_STRANGE, _DIGEST = "\x01", "\x02"


def hash_words(lists: Iterable[Sequence[str]], key: np.uint64) -> _Hashes:
    """Return a hash of each word, list after list. Raises TypeError if one of them is no str.

    Parameters
    ----------
    lists
        Lists of words.
    key
        An odd number, chosen at random, so that nobody can construct words with equal hashes.

    Examples
    --------
    >>> hashes = hash_words([["tea", "jam"], [], ["tea"]], np.uint64(12345))
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    parts = list[_Hashes]()
    block, size = list[Sequence[str]](), 0
    for one in lists:
        if len(one):
            block.append(one)
            size += len(one)
        if size >= _BLOCK:
            parts.append(_hash(block, size, key))
            block, size = [], 0
    if block or not parts:
        parts.append(_hash(block, size, key))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def hash_few_words(words: Sequence[str], key: int) -> list[int]:
    """Return a hash of each word, the same as `hash_words`: for a few words this is faster than calls of numpy.

    Examples
    --------
    >>> hash_few_words(["tea", "marmalade"], 12345) == hash_words([["tea", "marmalade"]], np.uint64(12345)).tolist()
    True
    """
    joined = "\0".join(words).encode("utf-8", "surrogatepass")
    texts = joined.split(b"\0") if words else []
    if len(texts) != len(words) or max(map(len, texts), default=0) > _LONG:
        texts = [(_STRANGE if "\0" in word else _short(word)).encode("utf-8", "surrogatepass") for word in words]
    hashes = []
    for text in texts:
        value, pieces = 0, int.from_bytes(text, "little")
        while pieces:  # no piece is zero, because no byte is
            value = ((value ^ pieces & _ALL_BITS) + key) * key & _ALL_BITS
            value ^= value >> 32
            pieces >>= 64
        hashes.append(value)
    return hashes


def hash_numbers(numbers: npt.NDArray[np.int64], key: np.uint64) -> _Hashes:
    """Return a hash of each number; see `hash_words`."""
    return _add(np.zeros(numbers.shape, dtype=np.uint64), numbers.astype(np.uint64), key)


def _hash(lists: Sequence[Sequence[str]], n: int, key: np.uint64) -> _Hashes:
    """Return the hashes of the n words of some lists, none of which is empty."""
    hashes = np.zeros(n, dtype=np.uint64)
    if not n:
        return hashes
    for piece, having in _pieces(lists, n):
        if having is None:
            _add(hashes, piece, key)
        else:
            hashes[having] = _add(hashes[having], piece, key)
    return hashes


def _add(hashes: _Hashes, piece: _Hashes, key: np.uint64) -> _Hashes:
    """Add a piece to hashes, in place: for each key this is a permutation of the hashes, and of the pieces."""
    hashes ^= piece
    hashes += key
    hashes *= key
    hashes ^= hashes >> _FOLD
    return hashes


def _pieces(lists: Sequence[Sequence[str]], n: int) -> Iterator[tuple[_Hashes, _Places | None]]:
    """Yield the first 8 bytes of the words, the next 8, and so on, and the words that have them; None for all."""
    # Joined list by list, because each word is touched twice: it is in the cache the second time. At the end is a whole
    # piece of zeros.
    text = "\0".join([*("\0".join(one) for one in lists), "\0" * (_PIECE - 1)]).encode("utf-8", "surrogatepass")
    letters, size = np.frombuffer(text, dtype=np.uint8), len(text) - _PIECE + 1
    step = size // n
    if np.count_nonzero(letters) != size - n:
        yield from _pieces([[_STRANGE if "\0" in word else word for word in one] for one in lists], n)
    elif size == n * step and step <= _LONG and not letters[step - 1 : size : step].any():
        # Ids of one length, as most are, begin at equal distances.
        for at in range(0, step - 1, _PIECE):
            piece = np.ndarray(n, dtype="<u8", buffer=text, offset=at, strides=(step,))
            yield (piece if at + _PIECE < step else piece & _BITS[step - 1 - at]), None
    else:
        ends = np.flatnonzero(letters[:size] == 0)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        if lengths.max() > _LONG:
            yield from _pieces([[_short(word) for word in one] for one in lists], n)
            return
        anywhere = np.ndarray(size, dtype="<u8", buffer=text, strides=(1,))
        shortest, having = int(lengths.min()), None
        for at in range(0, int(lengths.max()), _PIECE):
            if at >= shortest:
                having = np.flatnonzero(lengths > at)
            first, size = (starts, lengths) if having is None else (starts[having], lengths[having])
            piece = anywhere[first + at]
            if at + _PIECE > shortest:
                piece &= _BITS[np.minimum(size - at, _PIECE)]
            yield piece, having


def _short(word: str) -> str:
    text = word.encode("utf-8", "surrogatepass")
    return word if len(text) <= _LONG else _DIGEST + blake2b(text, digest_size=32).hexdigest()
