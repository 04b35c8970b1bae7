/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/heat_map.h"

#include "cli/control_client.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

/* More than any model has; keeps a wrong answer from asking for memory without end. */
constexpr uint64_t kMaxHeads = 1 << 20;

double cell_value(const json &head, HeatOf of)
{
	double hot = real_at(head, "/hot"), warm = real_at(head, "/warm"),
	       cold = real_at(head, "/cold");

	switch (of) {
	case HeatOf::Score:
		return hot + warm > 0 ? real_at(head, "/ema_sum") / (hot + warm) : 0;
	case HeatOf::Hot:
		return hot + warm + cold > 0 ? hot / (hot + warm + cold) : 0;
	case HeatOf::Cold:
		return hot + warm + cold > 0 ? cold / (hot + warm + cold) : 0;
	}
	return 0;
}

size_t fold(size_t count, size_t room)
{
	return (count + room - 1) / room;
}

} // namespace

const char *heat_title(HeatOf of)
{
	switch (of) {
	case HeatOf::Score:
		return "score";
	case HeatOf::Hot:
		return "share of blocks that are hot";
	case HeatOf::Cold:
		return "share of blocks that are cold";
	}
	return "";
}

HeatMap::HeatMap(const json &heads, HeatOf of, size_t max_width, size_t max_height)
{
	uint64_t layers = number_at(heads, "/layers"), kv_heads = number_at(heads, "/kv_heads");

	if (!max_width || !max_height || !layers || !kv_heads || layers > kMaxHeads ||
	    kv_heads > kMaxHeads || !heads.contains("heads") || !heads["heads"].is_array() ||
	    heads["heads"].size() != layers * kv_heads)
		return;
	layers_per_cell_ = fold(layers, max_width);
	heads_per_cell_ = fold(kv_heads, max_height);
	width_ = fold(layers, layers_per_cell_);
	height_ = fold(kv_heads, heads_per_cell_);
	cells_.assign(width_ * height_, 0);

	std::vector<size_t> counts(cells_.size());
	for (size_t i = 0; i < heads["heads"].size(); i++) { /* head = layer * kv_heads + kv_head */
		size_t cell =
			i % kv_heads / heads_per_cell_ * width_ + i / kv_heads / layers_per_cell_;
		cells_[cell] += cell_value(heads["heads"][i], of);
		counts[cell]++;
	}
	for (size_t i = 0; i < cells_.size(); i++)
		cells_[i] /= static_cast<double>(std::max<size_t>(counts[i], 1));
	top_ = of == HeatOf::Score ? *std::ranges::max_element(cells_) : 1.0;
}

size_t HeatMap::level(size_t x, size_t y) const
{
	double share = top_ > 0 ? value(x, y) / top_ : 0;

	if (!(share > 0))
		return 0;
	return static_cast<size_t>(
		std::clamp(std::ceil(share * (kNrLevels - 1)), 1.0, double{kNrLevels - 1}));
}

char HeatMap::letter(size_t level)
{
	return " .:-=+*#%@"[std::min(level, kNrLevels - 1)];
}

} // namespace cxlkv
