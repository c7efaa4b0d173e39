"""
The order in which Go's ``sort.Slice`` leaves a slice, equal elements included.

Karpenter sorts its new node claims by the number of pods before every pod and takes the first that
fits, so the order of equal claims decides. Up to 12 elements the sort is an insertion sort and
stable; above, it is the pattern-defeating quicksort of Go 1.19 and later: repeatable, not stable.
"""

_INSERTION = 12
_NINTHER = 50
_MOST_SWAPS = 12
_MOST_STEPS = 5
_MASK = 2**64 - 1


def sort_slice(keys: list[int], items: list[int]) -> None:
    """Sort ``items`` in place by ``keys``, which is reordered along."""
    size = len(keys)
    _Sorting(keys, items).sort(0, size, size.bit_length())


class _Sorting:
    """One run of the sort over two parallel lists."""

    def __init__(self, keys: list[int], items: list[int]) -> None:
        self.keys = keys
        self.items = items

    def swap(self, i: int, j: int) -> None:
        keys, items = self.keys, self.items
        keys[i], keys[j] = keys[j], keys[i]
        items[i], items[j] = items[j], items[i]

    def sort(self, a: int, b: int, limit: int) -> None:
        balanced = partitioned = True
        keys = self.keys
        while True:
            length = b - a
            if length <= _INSERTION:
                self.insertion(a, b)
                return
            if limit == 0:
                self.heap(a, b)
                return
            if not balanced:
                self.break_patterns(a, b)
                limit -= 1
            pivot, swaps = self.choose_pivot(a, b)
            if swaps == _MOST_SWAPS:
                self.reverse(a, b)
                pivot = (b - 1) - (pivot - a)
                swaps = 0
            if balanced and partitioned and swaps == 0 and self.partial_insertion(a, b):
                return
            if a > 0 and not keys[a - 1] < keys[pivot]:
                a = self.partition_equal(a, b, pivot)
                continue
            middle, partitioned = self.partition(a, b, pivot)
            left, right = middle - a, b - middle
            threshold = length // 8
            if left < right:
                balanced = left >= threshold
                self.sort(a, middle, limit)
                a = middle + 1
            else:
                balanced = right >= threshold
                self.sort(middle + 1, b, limit)
                b = middle

    def insertion(self, a: int, b: int) -> None:
        keys = self.keys
        for i in range(a + 1, b):
            j = i
            while j > a and keys[j] < keys[j - 1]:
                self.swap(j, j - 1)
                j -= 1

    def heap(self, a: int, b: int) -> None:
        size = b - a
        for root in range((size - 1) // 2, -1, -1):
            self.sift_down(root, size, a)
        for last in range(size - 1, -1, -1):
            self.swap(a, a + last)
            self.sift_down(0, last, a)

    def sift_down(self, root: int, size: int, first: int) -> None:
        keys = self.keys
        while (child := 2 * root + 1) < size:
            if child + 1 < size and keys[first + child] < keys[first + child + 1]:
                child += 1
            if not keys[first + root] < keys[first + child]:
                return
            self.swap(first + root, first + child)
            root = child

    def break_patterns(self, a: int, b: int) -> None:
        """Swap three elements around the middle with pseudo-random ones."""
        length = b - a
        if length < 8:
            return
        state = length
        modulus = 1 << length.bit_length()
        first = a + (length // 4) * 2 - 1
        for i in range(3):
            state ^= (state << 13) & _MASK
            state ^= state >> 7
            state ^= (state << 17) & _MASK
            other = state & (modulus - 1)
            if other >= length:
                other -= length
            self.swap(first + i, a + other)

    def choose_pivot(self, a: int, b: int) -> tuple[int, int]:
        """The place of the pivot, and how many samples were out of order."""
        length = b - a
        quarter = length // 4
        i, j, k = a + quarter, a + quarter * 2, a + quarter * 3
        swaps = 0
        if length >= 8:
            if length >= _NINTHER:
                i, swaps = self.median(i - 1, i, i + 1, swaps)
                j, swaps = self.median(j - 1, j, j + 1, swaps)
                k, swaps = self.median(k - 1, k, k + 1, swaps)
            j, swaps = self.median(i, j, k, swaps)
        return j, swaps

    def median(self, a: int, b: int, c: int, swaps: int) -> tuple[int, int]:
        keys = self.keys
        if keys[b] < keys[a]:
            a, b, swaps = b, a, swaps + 1
        if keys[c] < keys[b]:
            b, c, swaps = c, b, swaps + 1
        if keys[b] < keys[a]:
            a, b, swaps = b, a, swaps + 1
        return b, swaps

    def reverse(self, a: int, b: int) -> None:
        self.keys[a:b] = self.keys[a:b][::-1]
        self.items[a:b] = self.items[a:b][::-1]

    def partial_insertion(self, a: int, b: int) -> bool:
        """Repair a few elements that are out of order; False if there are too many."""
        keys = self.keys
        i = a + 1
        for _ in range(_MOST_STEPS):
            while i < b and not keys[i] < keys[i - 1]:
                i += 1
            if i == b:
                return True
            if b - a < _NINTHER:
                return False
            self.swap(i, i - 1)
            if i - a >= 2:
                j = i - 1
                while j >= 1 and keys[j] < keys[j - 1]:
                    self.swap(j, j - 1)
                    j -= 1
            if b - i >= 2:
                j = i + 1
                while j < b and keys[j] < keys[j - 1]:
                    self.swap(j, j - 1)
                    j += 1
        return False

    def partition_equal(self, a: int, b: int, pivot: int) -> int:
        """Move elements equal to the pivot to the front; the place after them."""
        keys = self.keys
        self.swap(a, pivot)
        i, j = a + 1, b - 1
        while True:
            while i <= j and not keys[a] < keys[i]:
                i += 1
            while i <= j and keys[a] < keys[j]:
                j -= 1
            if i > j:
                return i
            self.swap(i, j)
            i, j = i + 1, j - 1

    def partition(self, a: int, b: int, pivot: int) -> tuple[int, bool]:
        """Split around the pivot: its new place, and whether nothing had to move."""
        keys = self.keys
        self.swap(a, pivot)
        i, j = a + 1, b - 1
        while i <= j and keys[i] < keys[a]:
            i += 1
        while i <= j and not keys[j] < keys[a]:
            j -= 1
        if i > j:
            self.swap(j, a)
            return j, True
        self.swap(i, j)
        i, j = i + 1, j - 1
        while True:
            while i <= j and keys[i] < keys[a]:
                i += 1
            while i <= j and not keys[j] < keys[a]:
                j -= 1
            if i > j:
                break
            self.swap(i, j)
            i, j = i + 1, j - 1
        self.swap(j, a)
        return j, False
