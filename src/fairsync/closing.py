"""Base classes of objects that are closed after use, and of those that cannot be copied."""

from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn, Self, SupportsIndex


class Closable(ABC):
    """A context manager that closes itself at the end of the block.

    Examples
    --------
    >>> class Door(Closable):
    ...     def close(self):
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds. A second call changes nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NoCopies:
    """Refuses `pickle`, `copy` and `deepcopy` with a sentence that says what to use instead.

    Attributes
    ----------
    use_instead : str
        The reason and the remedy, as the second half of that sentence.

    Examples
    --------
    >>> import copy
    >>> class Turnstile(NoCopies):
    ...     use_instead = "two would count the same visitors; make a new one"
    >>> copy.deepcopy(Turnstile())
    Traceback (most recent call last):
    TypeError: A Turnstile cannot be pickled or copied: two would count the same visitors; make a new one.
    """

    use_instead: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} cannot be pickled or copied: {self.use_instead}.")
