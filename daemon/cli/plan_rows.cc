/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/plan_rows.h"

#include "cli/units.h"
#include "core/decide.h"

#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace cxlkv {

namespace {

/* 327680 -> "327,680"; decimals as asked for. */
std::string grouped(double value, int decimals = 0)
{
	std::string digits = fmt::format("{:.{}f}", std::fabs(value), decimals);
	size_t point = std::min(digits.find('.'), digits.size());

	while (point > 3) {
		point -= 3;
		digits.insert(point, ",");
	}
	return (value < 0 ? "-" : "") + digits;
}

/* Exact powers of two where they are whole, as in "4 GiB". */
std::string binary(double bytes)
{
	static constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;

	while (unit < 4 && bytes >= 1024) {
		bytes /= 1024;
		unit++;
	}
	return fmt::format("{:.4g} {}", bytes, units[unit]);
}

std::string tokens_text(double tokens)
{
	if (tokens >= 1048576 && std::fmod(tokens, 1048576) == 0)
		return fmt::format("{:.0f}M tokens", tokens / 1048576);
	if (tokens >= 1024 && std::fmod(tokens, 1024) == 0)
		return fmt::format("{:.0f}K tokens", tokens / 1024);
	return grouped(tokens) + " tokens";
}

/* "15 + 20 + 25" */
std::string parts(const std::vector<double> &values, int decimals = 0)
{
	std::string out;
	for (double value : values)
		out += (out.empty() ? "" : " + ") + grouped(value, decimals);
	return out;
}

/* Times are printed with two digits below 10 ms, in whole ms above. */
int ms_decimals(double ms)
{
	return ms < 0.995 ? 2 : ms < 9.95 ? 1 : 0;
}

/* Collects the rows of one section after the other. */
class Rows {
public:
	explicit Rows(std::vector<PlanRow> first) : rows_(std::move(first)) {}

	void section(const char *name) { section_ = name; }
	void add(const std::string &name, double value, int decimals, const char *unit,
		 const std::string &note = "")
	{
		rows_.push_back({section_, name, rounded(value, decimals), unit,
				 grouped(value, decimals) + (*unit ? " " : "") + unit, note,
				 "model"});
	}
	std::vector<PlanRow> take() { return std::move(rows_); }

private:
	std::string section_;
	std::vector<PlanRow> rows_;
};

void add_size(Rows &rows, const PlanInputs &in)
{
	const KvShape &s = in.shape;
	auto size_row = [&](double tokens) {
		double GB = rounded_GB(s.bytes(tokens));
		double percent = GB / in.card_GB * 100;
		rows.add(tokens_text(tokens), GB, GB >= 20 ? 0 : 1, "GB",
			 fmt::format("{}; {:.{}f} % of {} GB", binary(s.bytes(tokens)), percent,
				     percent < 10 ? 1 : 0, grouped(in.card_GB)));
	};

	rows.section("KV size");
	rows.add("a token", s.bytes_per_token(), 0, "B",
		 fmt::format("2 x {} layers x {} KV heads x {} x {:g} B = {}", s.layers, s.kv_heads,
			     s.head_dim, s.elem_bytes, binary(s.bytes_per_token())));
	std::set<double> sizes = {4096, 32768, 131072, 524288, 1048576, in.context_tokens};
	for (double tokens : sizes)
		size_row(tokens);
	rows.add(fmt::format("{} contexts", grouped(in.users)),
		 rounded_GB(s.bytes(in.context_tokens) * in.users), 0, "GB",
		 binary(s.bytes(in.context_tokens) * in.users));
	rows.add("multi-head attention", static_cast<double>(s.heads) / s.kv_heads, 1, "times",
		 fmt::format("{} KV heads instead of {}", s.heads, s.kv_heads));
	rows.add("multi-query attention", s.kv_heads, 0, "times less", "1 KV head");
}

void add_formats(Rows &rows, const PlanInputs &in)
{
	static const struct {
		const char *name, *loss;
		double elem_bytes;
	} formats[] = {{"FP16", "", 2},
		       {"FP8", "< 0.1 % loss claimed", 1},
		       {"INT8", "< 0.5 % loss claimed", 1},
		       {"INT4", "about 1 % loss claimed", 0.5}};
	KvShape full = in.shape;
	full.elem_bytes = 2;
	double GB = rounded_GB(full.bytes(in.context_tokens));

	rows.section("formats");
	for (const auto &format : formats)
		rows.add(format.name, GB * format.elem_bytes / 2, format.elem_bytes == 2 ? 0 : 1,
			 "GB", format.loss);
	for (auto [name, GBps] :
	     {std::pair{"FP16 to INT8", 48}, {"FP16 to INT4", 32}, {"INT8 to FP16", 64}})
		rows.add(name, GBps, 0, "GB/s", "claimed for one endpoint");
}

/* Known of the example's contexts only: of others the same share is taken. */
void add_hot_set(Rows &rows, const PlanInputs &in)
{
	const PlanInputs example;
	double GB = in.hot_set_GB / in.hot_users;
	double example_bytes = example.shape.bytes(example.context_tokens);
	double bytes = in.shape.bytes(in.context_tokens);

	rows.add("hot set a user", GB * bytes / example_bytes, 2, "GB",
		 bytes == example_bytes ? fmt::format("{} GB for {} users", grouped(in.hot_set_GB),
						      grouped(in.hot_users))
					: fmt::format("{:.1f} % of a context, as in the example",
						      GB * 1e9 / example_bytes * 100));
}

void add_wall(Rows &rows, const PlanInputs &in)
{
	double context_GB = rounded_GB(in.shape.bytes(in.context_tokens));
	double need = in.weights_GB + in.users * context_GB + in.overhead_GB;
	double heads = static_cast<double>(in.shape.layers) * in.shape.kv_heads;
	double metadata = heads * in.context_tokens * 8;

	rows.section("capacity");
	rows.add("needed", need, 0, "GB",
		 fmt::format("{} weights + {} users x {} + {}", grouped(in.weights_GB),
			     grouped(in.users), grouped(context_GB, context_GB >= 20 ? 0 : 1),
			     grouped(in.overhead_GB)));
	rows.add("of the card", need / in.card_GB, 1, "times", grouped(in.card_GB) + " GB");
	rows.add("token metadata", metadata / 1048576, 0, "MiB",
		 fmt::format("{} heads x {} tokens x 8 B", grouped(heads),
			     grouped(in.context_tokens)));
	rows.add("of the KV cache", metadata / in.shape.bytes(in.context_tokens) * 100, 2, "%");
	add_hot_set(rows, in);
}

void add_tiers(Rows &rows, const PlanInputs &in)
{
	double cxl_GB = in.endpoints * in.endpoint_GB, cold_TB = in.drives * in.drive_TB;

	rows.section("tiers");
	rows.add("hot", in.card_GB, 0, "GB", fmt::format("{} TB/s", grouped(in.card_GBps / 1000)));
	rows.add("warm", cxl_GB / 1024, 0, "TB",
		 fmt::format("{} x {} GB, about {} ns", grouped(in.endpoints),
			     grouped(in.endpoint_GB), grouped(in.latency.warm_ns)));
	rows.add("warm links", in.endpoints * in.link_GBps, 0, "GB/s",
		 fmt::format("{} x {} GB/s", grouped(in.endpoints), grouped(in.link_GBps)));
	rows.add("inside an endpoint", in.channels * in.channel_GBps, 1, "GB/s",
		 fmt::format("{} x {} GB/s", grouped(in.channels), grouped(in.channel_GBps, 1)));
	rows.add("cold", cold_TB, 0, "TB",
		 fmt::format("{} x {} TB, about {} µs, about {} GB/s", grouped(in.drives),
			     grouped(in.drive_TB), grouped(in.latency.cold_ns / 1000),
			     grouped(in.drive_GBps)));
	rows.add("all", in.card_GB / 1000 + cxl_GB / 1024 + cold_TB, 0, "TB");
}

void add_latency(Rows &rows, const PlanInputs &in)
{
	double cxl_ns = sum(in.cxl_read_ns), dma_us = sum(in.pcie_dma_us);
	double untiered =
		in.untiered_hit * in.latency.hot_ns + (1 - in.untiered_hit) * dma_us * 1000;

	rows.section("latency");
	rows.add("CXL.mem read", cxl_ns, 0, "ns", parts(in.cxl_read_ns));
	rows.add("PCIe DMA", dma_us, 2, "µs", parts(in.pcie_dma_us, 2));
	rows.add("DMA / CXL", dma_us * 1000 / cxl_ns, 0, "times");
	for (double hit : {0.97, 0.93, 0.87, 0.80, 0.72, 0.60})
		rows.add(fmt::format("effective at {:.0f} %", hit * 100),
			 in.latency.effective_ns(hit), 0, "ns",
			 fmt::format("{:.0f} ns of it for {:.1f} % on flash",
				     in.latency.cold_part_ns(hit),
				     in.latency.cold_share * (1 - hit) * 100));
	rows.add("without tiers", untiered, 0, "ns",
		 fmt::format("{:.0f} % at {} ns, the rest by DMA", in.untiered_hit * 100,
			     grouped(in.latency.hot_ns)));
	rows.add("gain at 97 %", untiered / in.latency.effective_ns(0.97), 1, "times");
}

void add_bandwidth(Rows &rows, const PlanInputs &in)
{
	double stream_GB = rounded(sum(in.layer_stream_GB), 2);
	double context_GB = rounded_GB(in.shape.bytes(in.context_tokens));
	double links = in.endpoints * in.link_GBps;

	rows.section("bandwidth");
	rows.add("streaming a layer", stream_GB, 2, "GB", parts(in.layer_stream_GB, 3));
	rows.add("its time", transfer_ms(stream_GB * 1e9, in.link_GBps), 1, "ms",
		 fmt::format("over {} GB/s", grouped(in.link_GBps)));
	rows.add("steady state", in.steady_GBps / links * 100, 1, "%",
		 fmt::format("{} of {} GB/s", grouped(in.steady_GBps, 1), grouped(links)));
	for (double n = 1; n <= in.endpoints; n++)
		rows.add(fmt::format("admission, {:.0f} endpoint{}", n, n > 1 ? "s" : ""),
			 transfer_ms(context_GB * 1e9, n * in.link_GBps), 0, "ms",
			 fmt::format("{} GB", grouped(context_GB, context_GB >= 20 ? 0 : 1)));
	rows.add("4 GiB over a link", transfer_ms(4.0 * (1ull << 30), in.link_GBps), 0, "ms");
	rows.add("20 tokens/s x 4 GiB", 20.0 * 4, 0, "GiB/s");
}

/* "6.9 times cheaper: fetch"; from the printed times, as the source reckons. */
std::string verdict(double fetch_ms, double recompute_ms, double margin)
{
	double gain = recompute_ms / fetch_ms, loss = fetch_ms / recompute_ms;

	if (!worth_fetching(fetch_ms, recompute_ms, margin, true))
		return fmt::format("recompute: {:.{}f} times cheaper", loss, loss < 9.95 ? 1 : 0);
	bool always = worth_fetching(fetch_ms, recompute_ms, margin, false);
	return fmt::format("{:.{}f} times cheaper: fetch{}", gain, gain < 9.95 ? 1 : 0,
			   always ? "" : " where latency counts");
}

void add_fetch(Rows &rows, const PlanInputs &in)
{
	rows.section("fetch or recompute");
	for (double tokens : {1000.0, 20000.0}) {
		double bytes = tokens * in.fetch_bytes_per_token;
		double rate = in.flops_per_s > 0 ? in.flops_per_s / (2 * in.parameters)
						 : in.prefill_tokens_per_s;
		DecideInput question;
		question.tokens = tokens;
		question.prefill_tokens_per_s = rate;
		double recompute = decide(question).recompute_s * 1e3;

		rows.add(tokens_text(tokens) + ", recompute", recompute, ms_decimals(recompute),
			 "ms",
			 fmt::format("{} MB of KV at {} B a token", grouped(bytes / 1e6),
				     grouped(in.fetch_bytes_per_token)));
		for (double GBps : in.fetch_GBps) {
			question.parts[0] = {bytes, GBps * 1e9, 0};
			double fetch = decide(question).fetch_s * 1e3;
			rows.add(fmt::format("{}, {:g} GB/s", tokens_text(tokens), GBps), fetch,
				 ms_decimals(fetch), "ms",
				 verdict(rounded(fetch, ms_decimals(fetch)), recompute, in.margin));
		}
	}
}

void add_cost(Rows &rows, const PlanInputs &in)
{
	double endpoint_W = sum(in.endpoint_W);
	CostModel before{in.capex_usd, in.wall_kW, in.pue, in.years, in.usd_per_kWh};
	CostModel after{in.tiered_capex_usd, in.tiered_wall_kW, in.pue, in.years, in.usd_per_kWh};

	rows.section("power");
	rows.add("an endpoint", endpoint_W, 0, "W", parts(in.endpoint_W));
	rows.add("its peak", sum(in.endpoint_peak_W), 0, "W", parts(in.endpoint_peak_W));
	rows.add("all endpoints", endpoint_W * in.endpoints, 0, "W");
	rows.add("wall power", percent_less(before.wall_kW, after.wall_kW), 0, "% less",
		 fmt::format("{:.1f} kW against {:.1f}", after.wall_kW, before.wall_kW));

	rows.section("cost");
	rows.add("CapEx", sum(before.capex_usd), 0, "USD", parts(before.capex_usd));
	rows.add("CapEx, tiered", sum(after.capex_usd), 0, "USD", parts(after.capex_usd));
	rows.add("CapEx saved", sum(before.capex_usd) - sum(after.capex_usd), 0, "USD",
		 fmt::format("{:.0f} % less",
			     percent_less(sum(before.capex_usd), sum(after.capex_usd))));
	rows.add("energy", before.energy_usd(), 0, "USD",
		 fmt::format("{:.1f} kW x {:g} PUE x 8,760 h x {:g} years x {:g} USD",
			     before.wall_kW, before.pue, before.years, before.usd_per_kWh));
	rows.add("energy, tiered", after.energy_usd(), 0, "USD");
	rows.add("TCO", before.total_usd(), 0, "USD");
	rows.add("TCO, tiered", after.total_usd(), 0, "USD");
	rows.add("TCO saved", before.total_usd() - after.total_usd(), 0, "USD",
		 fmt::format("{:.0f} % less", percent_less(before.total_usd(), after.total_usd())));
}

} // namespace

std::vector<PlanRow> plan_rows(const PlanInputs &inputs)
{
	Rows rows(inputs.measured);

	add_size(rows, inputs);
	add_formats(rows, inputs);
	add_wall(rows, inputs);
	add_tiers(rows, inputs);
	add_latency(rows, inputs);
	add_bandwidth(rows, inputs);
	add_fetch(rows, inputs);
	add_cost(rows, inputs);
	return rows.take();
}

Result<> use_measured(const nlohmann::json &figures, PlanInputs &inputs)
{
	auto number = [](const nlohmann::json &in, const char *name) {
		auto it = in.is_object() ? in.find(name) : in.end();
		return in.is_object() && it != in.end() && it->is_number() ? it->get<double>()
									   : 0.0;
	};
	auto take = [&](const std::string &name, double value, int decimals, const char *unit) {
		inputs.measured.push_back({"tiers", name, rounded(value, decimals), unit,
					   grouped(value, decimals) + " " + unit, "", "measured"});
	};
	if (number(figures, "version") != 1 || !figures.contains("nodes") ||
	    !figures["nodes"].is_array())
		return error(EINVAL, "not written by `cxl-kv bench -o`");

	std::vector<double> fetch_GBps;
	for (auto [tier, latency] :
	     {std::pair{"hot", &inputs.latency.hot_ns}, {"warm", &inputs.latency.warm_ns}}) {
		double best_ns = 0, best_GBps = 0;
		for (const auto &node : figures["nodes"]) {
			double ns = number(node, "read_ns"),
			       GBps = number(node, "copy_MBps") / 1000;
			if (!node.is_object() || node.value("tier", nlohmann::json()) != tier ||
			    ns <= 0 || GBps <= 0)
				continue;
			best_ns = best_ns > 0 ? std::min(best_ns, ns) : ns;
			best_GBps = std::max(best_GBps, GBps);
		}
		if (best_ns <= 0)
			continue;
		*latency = best_ns;
		take(std::string(tier) + ", read", best_ns, 0, "ns");
		take(std::string(tier) + ", copy", best_GBps, 1, "GB/s");
		fetch_GBps.push_back(rounded(best_GBps, 1));
	}
	if (figures.contains("cold") && number(figures["cold"], "block_read_p50_ns") > 0 &&
	    number(figures["cold"], "read_MBps") > 0) {
		inputs.latency.cold_ns = number(figures["cold"], "block_read_p50_ns");
		inputs.drive_GBps = rounded(number(figures["cold"], "read_MBps") / 1000, 1);
		take("cold, a block", inputs.latency.cold_ns / 1000, 0, "µs");
		take("cold, read", inputs.drive_GBps, 1, "GB/s");
		fetch_GBps.push_back(inputs.drive_GBps);
	}
	if (fetch_GBps.empty())
		return error(EINVAL, "has no figure of a node or of a drive");
	inputs.fetch_GBps = fetch_GBps;
	return ok();
}

std::string plan_text(const std::vector<PlanRow> &rows)
{
	std::string out, section;

	for (const PlanRow &row : rows) {
		std::string title = row.source + "  " + row.section;
		if (title != section)
			out += title + "\n";
		section = title;
		std::string line = fmt::format("{}    {} {}", row.source, left(row.name, 23),
					       right(row.text, 13));
		if (columns(line) + 2 + columns(row.note) > 80)
			line += "\n" + row.source + "      ";
		out += row.note.empty() ? line + "\n" : line + "  " + row.note + "\n";
	}
	return out;
}

nlohmann::json plan_json(const std::vector<PlanRow> &rows)
{
	nlohmann::json out = nlohmann::json::array();

	for (const PlanRow &row : rows)
		out.push_back({{"source", row.source},
			       {"section", row.section},
			       {"name", row.name},
			       {"value", row.value},
			       {"unit", row.unit},
			       {"note", row.note}});
	return out;
}

} // namespace cxlkv
