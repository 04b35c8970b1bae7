/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One value for each (layer, KV head), folded until it fits a screen: layers
 * across, heads down. A cell is the mean of what it covers. Drawn as letters
 * here; colours are the business of who prints.
 */
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cxlkv {

/* What a cell shows. */
enum class HeatOf {
	Score, /* mean EMA of the head's resident blocks */
	Hot,   /* share of the head's blocks in the hot tier */
	Cold,  /* share in the cold tier */
};
constexpr size_t kNrHeatOf = 3;

const char *heat_title(HeatOf of);

class HeatMap {
public:
	static constexpr size_t kNrLevels = 10;

	/* heads: the daemon's `heads` answer. Empty where its counts do not fit each other. */
	HeatMap(const nlohmann::json &heads, HeatOf of, size_t max_width, size_t max_height);

	[[nodiscard]] bool empty() const { return cells_.empty(); }
	[[nodiscard]] size_t width() const { return width_; }
	[[nodiscard]] size_t height() const { return height_; }
	[[nodiscard]] size_t layers_per_cell() const { return layers_per_cell_; }
	[[nodiscard]] size_t heads_per_cell() const { return heads_per_cell_; }
	/* Value that the highest level stands for. Shares: 1. */
	[[nodiscard]] double top() const { return top_; }
	[[nodiscard]] double value(size_t x, size_t y) const { return cells_[y * width_ + x]; }
	/* 0..kNrLevels - 1; 0 only where nothing is. */
	[[nodiscard]] size_t level(size_t x, size_t y) const;
	/* One letter a level, from ' ' to '@'. */
	static char letter(size_t level);

private:
	size_t width_ = 0, height_ = 0, layers_per_cell_ = 1, heads_per_cell_ = 1;
	double top_ = 0;
	std::vector<double> cells_;
};

} // namespace cxlkv
