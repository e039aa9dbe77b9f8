#pragma once

#include <cstddef>

// AMX: the tile registers of a thread, and the instructions that the kernels use. What the processor refuses
// with an exception ends the program here, with a line that says what is wrong: a tile that is not
// configured, a shape that does not fit, a palette that there is not.

void _tile_loadconfig(const void* config);
void _tile_release();
void _tile_zero(int tile);
void _tile_loadd(int tile, const void* base, size_t stride);
void _tile_stream_loadd(int tile, const void* base, size_t stride);
void _tile_stored(int tile, void* base, size_t stride);
void _tile_dpbssd(int sum, int a, int b);
void _tile_dpbf16ps(int sum, int a, int b);
