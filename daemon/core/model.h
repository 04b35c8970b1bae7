/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sizing model: arithmetic on numbers that are given, nothing measured. GB
 * and GB/s are powers of ten, times are in the unit that the name says. The
 * defaults are the published example: Llama-70B on a 192 GB accelerator with
 * four CXL endpoints and four NVMe drives.
 */
#pragma once

#include <cstdint>
#include <vector>

namespace cxlkv {

/* What a token of KV cache costs: K and V of every layer and KV head. */
struct KvShape {
	uint32_t layers = 80;
	uint32_t kv_heads = 8;
	uint32_t heads = 64; /* query heads; what multi-head attention would keep */
	uint32_t head_dim = 128;
	double elem_bytes = 2;

	[[nodiscard]] double bytes_per_token() const
	{
		return 2.0 * layers * kv_heads * head_dim * elem_bytes;
	}
	[[nodiscard]] double bytes(double tokens) const { return bytes_per_token() * tokens; }
};

/* As people print it, and as the published example goes on calculating with it. */
double rounded(double value, int decimals);
/* Whole GB from 20 up, tenths below. */
double rounded_GB(double bytes);

/* Time of a transfer, in ms. */
double transfer_ms(double bytes, double GBps);

/* Mean time of an access by the share that hits the hot tier. */
struct LatencyModel {
	double hot_ns = 100;
	double warm_ns = 200;
	double cold_ns = 25000;
	double cold_share = 0.1; /* of the accesses that miss hot */

	[[nodiscard]] double cold_part_ns(double hot_hit) const
	{
		return cold_share * (1 - hot_hit) * cold_ns;
	}
	[[nodiscard]] double effective_ns(double hot_hit) const
	{
		return hot_hit * hot_ns + (1 - cold_share) * (1 - hot_hit) * warm_ns +
		       cold_part_ns(hot_hit);
	}
};

double sum(const std::vector<double> &parts);

/* One way to buy and run it. */
struct CostModel {
	std::vector<double> capex_usd;
	double wall_kW = 0;
	double pue = 1.4;
	double years = 3;
	double usd_per_kWh = 0.12;

	[[nodiscard]] double energy_usd() const
	{
		return wall_kW * pue * 8760 * years * usd_per_kWh;
	}
	[[nodiscard]] double total_usd() const { return sum(capex_usd) + energy_usd(); }
};

/* Part by which `now` is below `before`, in percent. */
double percent_less(double before, double now);

} // namespace cxlkv
