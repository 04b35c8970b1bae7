/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What `cxl-kv plan` prints: the sizing model (core/model.h) applied to its inputs, as rows. */
#pragma once

#include "base/result.h"
#include "core/model.h"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cxlkv {

/* A figure and how it is printed. value is as printed: rounded where the text is. */
struct PlanRow {
	std::string section;
	std::string name;
	double value = 0;
	std::string unit;
	std::string text;             /* value and unit, "43 GB" */
	std::string note;             /* how it comes about */
	std::string source = "model"; /* or "measured", by `cxl-kv bench` */
};

struct PlanInputs {
	KvShape shape;
	double parameters = 70e9;

	/* Load. */
	double context_tokens = 131072;
	double users = 8;
	double weights_GB = 140;
	double overhead_GB = 5; /* activations and the like */
	double hot_set_GB = 37; /* of hot_users with the contexts that stand here */
	double hot_users = 16;

	/* Tiers. */
	double card_GB = 192;
	double card_GBps = 8000;
	double endpoints = 4;
	double endpoint_GB = 256;
	double link_GBps = 64;
	double channels = 8; /* DDR5-5600 inside an endpoint */
	double channel_GBps = 44.8;
	double drives = 4;
	double drive_TB = 4;
	double drive_GBps = 14;
	LatencyModel latency;

	/* The published example's steps and parts; their sums are what counts. */
	std::vector<double> cxl_read_ns = {
		15, 20, 25, 40, 80, 20}; /* issue, PHY, switch, controller, DRAM, return */
	std::vector<double> pcie_dma_us = {4.00, 2.50, 1.50, 0.70, 0.10, 0.20, 4.00};
	double untiered_hit = 0.85; /* the rest by PCIe DMA */
	std::vector<double> layer_stream_GB = {0.302, 1.41, 0.512};
	double steady_GBps = 11.4;
	std::vector<double> endpoint_W = {40, 15, 12, 8, 5}, endpoint_peak_W = {60, 25, 18, 12, 8};

	/* Fetch or recompute. */
	double prefill_tokens_per_s = 50000;
	double flops_per_s = 0; /* 0: the rate above counts */
	double fetch_bytes_per_token = 160000;
	double margin = 3;
	std::vector<double> fetch_GBps = {900, 55, 50, 7, 3, 2};

	/* Power and cost, without and with tiering. */
	double wall_kW = 3.9, tiered_wall_kW = 1.9;
	double pue = 1.4, years = 3, usd_per_kWh = 0.12;
	std::vector<double> capex_usd = {105000, 55000};
	std::vector<double> tiered_capex_usd = {35000, 40000, 8000, 20000};

	/* What of the above was measured, as rows of its own. */
	std::vector<PlanRow> measured;
};

/*
 * Takes latencies and bandwidths from the JSON of `cxl-kv bench`. Of several nodes
 * of a tier the best counts. EINVAL where the file is none of bench.
 */
Result<> use_measured(const nlohmann::json &figures, PlanInputs &inputs);

std::vector<PlanRow> plan_rows(const PlanInputs &inputs);

/* Every line begins with its source. */
std::string plan_text(const std::vector<PlanRow> &rows);
nlohmann::json plan_json(const std::vector<PlanRow> &rows);

} // namespace cxlkv
