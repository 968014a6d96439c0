// The sizes of the arrays of the GPU sampler.
#pragma once

#include <algorithm>
#include <cstdint>

namespace loader {

// Entries of the arrays that a plan needs, for each mini-batch of a launch.
struct Room {
  int64_t rows = 0, tasks = 0, picks_at = 0, picks = 0;
  int64_t bitmaps = 0, vertices = 0;  // of bitmaps: their words, and local ids
  int64_t table = 0, found = 0;       // of a hash set: its places, and the vertices that it has room for
  int64_t places = 0;                 // picks of a hop, if lists are read by the line
  // Of a launch, whatever its mini-batches:
  int64_t line_words = 0, lines = 0;

  void grow_to(const Room& other) {
    rows = std::max(rows, other.rows);
    tasks = std::max(tasks, other.tasks);
    picks_at = std::max(picks_at, other.picks_at);
    picks = std::max(picks, other.picks);
    bitmaps = std::max(bitmaps, other.bitmaps);
    vertices = std::max(vertices, other.vertices);
    table = std::max(table, other.table);
    found = std::max(found, other.found);
    places = std::max(places, other.places);
    line_words = std::max(line_words, other.line_words);
    lines = std::max(lines, other.lines);
  }
};

}  // namespace loader
