"""How many rows a transaction takes whose locks are to last a short time, by how long those before it took. Pure."""

#: Rows: the first chunk, the fewest and the most of any.
FIRST_CHUNK, LEAST_CHUNK, MOST_CHUNK = 1_000, 100, 5_000
#: Seconds that the locks of a chunk are aimed to last.
AIM_S = 0.1


def next_chunk(size: int, *, done: int, took_s: float) -> int:
    """
    Give the rows of the next chunk after one of up to `size`, in which `done` were found, that took so many seconds.

    One that took too long is followed by one that is likely to take half the aim. Only a full one shows that more
    would do.
    """
    if took_s > AIM_S:
        return max(LEAST_CHUNK, int(size * AIM_S / took_s / 2))
    if done >= size and took_s < AIM_S / 3:
        return min(MOST_CHUNK, size * 3 // 2)
    return size
