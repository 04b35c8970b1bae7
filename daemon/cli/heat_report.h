/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A heat map of one arena by layer and KV head over time: text for a terminal,
 * SVG for a page. Pure; cmd_report.cc asks the daemon.
 */
#pragma once

#include "cli/heat_map.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cxlkv {

struct HeatSample {
	double at_s = 0;      /* since the first */
	nlohmann::json heads; /* the daemon's `heads` answer */
};

struct HeatReport {
	std::string title; /* arena and client */
	HeatOf of = HeatOf::Score;
	std::vector<HeatSample> samples; /* at least one, all of one arena */
};

/* Layers down and time across, then the last sample by layer and head; at most 80 columns. */
std::string heat_text(const HeatReport &report);

/* The same with every head: a map of layers and time, and up to twelve of layers and heads. */
std::string heat_svg(const HeatReport &report);

} // namespace cxlkv
