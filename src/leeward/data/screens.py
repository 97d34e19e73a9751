"""Screens of Atari games in colors as the standard preprocessing has them: 84 × 84 gray pixels."""

from __future__ import annotations

import functools

import numpy as np

SIDE = 84
"""Rows and columns of a frame (Mnih et al. 2015)."""
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # red, green, blue: ITU-R BT.601
_BLOCK = 16  # screens converted together; ours: 6 MB of numbers


def gray_frames(screen: np.ndarray) -> np.ndarray:
    """[T, rows, columns, 3] uint8 → [T, 84, 84] uint8.

    The luma of every pixel, then the mean over the area that a pixel of the frame covers, as
    OpenCV's INTER_AREA has it.
    """
    down, across = area_weights(screen.shape[1]), area_weights(screen.shape[2])
    frame = np.empty((len(screen), SIDE, SIDE), np.uint8)
    for begin in range(0, len(screen), _BLOCK):
        gray = np.rint(screen[begin : begin + _BLOCK].astype(np.float32) @ _LUMA)
        frame[begin : begin + _BLOCK] = np.rint(down @ gray @ across.T)
    return frame


@functools.cache
def area_weights(size: int) -> np.ndarray:
    """[84, size] float32: what each of `size` pixels in a row counts in each of 84."""
    edge = np.arange(SIDE + 1) * (size / SIDE)
    pixel = np.arange(size)
    begin = np.maximum(edge[:-1, None], pixel[None, :])
    end = np.minimum(edge[1:, None], pixel[None, :] + 1)
    return (np.clip(end - begin, 0.0, None) / (size / SIDE)).astype(np.float32)
