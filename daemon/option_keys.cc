/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "option_keys.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <sys/un.h>
#include <type_traits>

namespace cxlkv {

namespace {

/* A smaller spill store cannot hold its segments; sys/spill_store_super.cc knows how many. */
constexpr uint64_t kMinStoreBytes = 16 << 20;

/* ---- values as a person reads them ---- */

template <typename T> std::string text_of(const T &value)
{
	return fmt::format("{}", value);
}

std::string text_of(const SizeSpec &size)
{
	return size.permil ? fmt::format("{:g}%", size.permil / 10.0)
			   : fmt::format("{}", size.bytes);
}

std::string text_of(const std::vector<int> &nodes)
{
	return nodes.empty() ? "auto" : fmt::format("{}", fmt::join(nodes, ","));
}

std::string text_of(const std::vector<std::string> &paths)
{
	return fmt::format("{}", fmt::join(paths, " "));
}

std::string quota_text(uint64_t bytes)
{
	return bytes == no_quota ? "none" : text_of(bytes);
}

std::string text_of(const std::vector<uint32_t> &ids)
{
	return fmt::format("[{}]", fmt::join(ids, ", "));
}

/* ---- values as they are read: nothing where they are not allowed ---- */

std::optional<std::string> path_of(const toml::node &node)
{
	auto value = node.value_exact<std::string>();

	if (!value || value->empty() || value->ends_with('/') ||
	    value->find('\0') != std::string::npos)
		return {};
	return value;
}

std::optional<std::vector<std::string>> paths_of(const toml::node &node)
{
	std::vector<std::string> paths;

	if (!node.is_array())
		return {};
	for (const toml::node &one : *node.as_array()) {
		auto path = path_of(one);
		if (!path)
			return {};
		paths.push_back(*path);
	}
	return paths;
}

std::optional<uint64_t> bytes_of(const toml::node &node)
{
	if (auto n = node.as_integer())
		return n->get() >= 0 ? std::optional<uint64_t>(n->get()) : std::nullopt;
	auto value = node.value<std::string>();
	if (!value)
		return {};
	auto bytes = parse_bytes(*value);
	return bytes ? std::optional<uint64_t>(*bytes) : std::nullopt;
}

/* "25%" */
std::optional<SizeSpec> share_of(const std::string &text)
{
	char *end = nullptr;

	if (!isdigit(static_cast<unsigned char>(text[0])))
		return {};
	double percent = strtod(text.c_str(), &end);
	if (*end != '%' || end[1] || !(percent >= 0.1 && percent <= 100))
		return {};
	return SizeSpec{0, static_cast<uint32_t>(percent * 10)};
}

/* "0,1" */
std::optional<std::vector<int>> ids_of(const std::string &text)
{
	std::vector<int> ids;

	for (size_t at = 0; at <= text.size();) {
		size_t comma = std::min(text.find(',', at), text.size());
		std::string part = text.substr(at, comma - at);
		if (part.empty() || part.size() > 4 ||
		    !std::ranges::all_of(part, [](unsigned char c) { return isdigit(c); }))
			return {};
		ids.push_back(atoi(part.c_str()));
		at = comma + 1;
	}
	return ids;
}

bool is_auto(const toml::node &node)
{
	return node.is_string() && *node.value<std::string>() == "auto";
}

/* "0,1", [0, 1] or 0: whole numbers from min to max, at least one. */
std::optional<std::vector<int>> list_of(const toml::node &node, int min, int max)
{
	std::vector<int> ids;

	if (auto text = node.value<std::string>(); node.is_string()) {
		auto listed = ids_of(*text);
		if (!listed)
			return {};
		ids = *listed;
	} else if (auto array = node.as_array()) {
		for (auto &&item : *array) {
			auto id = item.is_integer() ? item.value<int64_t>() : std::nullopt;
			ids.push_back(id && *id >= min && *id <= max ? static_cast<int>(*id) : -1);
		}
	} else if (auto id = node.as_integer(); id && id->get() >= min && id->get() <= max) {
		ids.push_back(static_cast<int>(id->get()));
	}
	bool wrong = ids.empty() ||
		     std::ranges::any_of(ids, [&](int id) { return id < min || id > max; });
	return wrong ? std::nullopt : std::optional(ids);
}

std::optional<std::vector<int>> nodes_of(const toml::node &node)
{
	if (is_auto(node))
		return std::vector<int>{};
	auto ids = list_of(node, 0, 1023);
	if (!ids)
		return {};
	std::ranges::sort(*ids);
	return std::ranges::adjacent_find(*ids) == ids->end() ? ids : std::nullopt;
}

std::optional<std::vector<int>> weights_of(const toml::node &node)
{
	return is_auto(node) ? std::vector<int>{} : list_of(node, 1, 1000);
}

/* ---- kinds of keys; field is where an Options has the value ---- */

template <typename Field, typename Parse>
OptionKey make_key(const char *table, const char *name, std::string allowed, Field field,
		   Parse parse)
{
	auto of = [=](const Options &options) -> const auto &
	{
		return field(const_cast<Options &>(options));
	};
	return {table,
		name,
		std::move(allowed),
		[=](Options &options, const toml::node &node) {
			auto value = parse(node);
			if (value)
				field(options) = *value;
			return value.has_value();
		},
		[=](const Options &options) { return text_of(of(options)); },
		[=](Options &to, const Options &from) { field(to) = of(from); }};
}

template <typename Field>
OptionKey number(const char *table, const char *name, double min, double max, Field field)
{
	using T = std::remove_reference_t<std::invoke_result_t<Field, Options &>>;
	constexpr bool whole = std::is_integral_v<T>;

	return make_key(table, name,
			fmt::format("a {}number from {} to {}", whole ? "whole " : "", min, max),
			field, [=](const toml::node &node) -> std::optional<T> {
				std::optional<double> value;
				if (whole ? node.is_integer() : node.is_number())
					value = node.value<double>();
				if (!value || !(*value >= min && *value <= max))
					return {};
				return static_cast<T>(*value);
			});
}

template <typename Field> OptionKey flag(const char *table, const char *name, Field field)
{
	return make_key(table, name, "true or false", field,
			[](const toml::node &node) { return node.value_exact<bool>(); });
}

template <typename Field> OptionKey path(const char *table, const char *name, Field field)
{
	return make_key(table, name, "a path of a file", field, path_of);
}

/* Longer ones are paths of files, but no socket can be bound to them. */
template <typename Field> OptionKey socket(const char *table, const char *name, Field field)
{
	constexpr size_t longest = sizeof(sockaddr_un::sun_path) - 1;

	return make_key(table, name, fmt::format("a path of a socket, up to {} bytes", longest),
			field, [](const toml::node &node) {
				auto value = path_of(node);
				return value && value->size() <= longest ? value : std::nullopt;
			});
}

template <typename Field> OptionKey paths(const char *table, const char *name, Field field)
{
	return make_key(table, name, "a list of paths such as [\"/mnt/b/spill\"]", field, paths_of);
}

template <typename Field>
OptionKey choice(const char *table, const char *name, std::vector<std::string> choices, Field field)
{
	return make_key(table, name, fmt::format("one of {}", fmt::join(choices, ", ")), field,
			[choices](const toml::node &node) -> std::optional<std::string> {
				auto value = node.value_exact<std::string>();
				if (!value || std::ranges::find(choices, *value) == choices.end())
					return {};
				return value;
			});
}

template <typename Field>
OptionKey bytes(const char *table, const char *name, uint64_t min, Field field)
{
	return make_key(table, name,
			fmt::format("bytes such as \"64GiB\", at least {} MiB", min >> 20), field,
			[=](const toml::node &node) {
				auto value = bytes_of(node);
				return value && *value >= min ? value : std::nullopt;
			});
}

template <typename Field> OptionKey limit(const char *table, Field field)
{
	return make_key(table, "limit",
			"bytes such as \"24GiB\", or a share of the tier's nodes such as \"25%\"",
			field, [](const toml::node &node) -> std::optional<SizeSpec> {
				auto value = node.value_exact<std::string>();
				if (value && value->ends_with('%'))
					return share_of(*value);
				auto bytes = bytes_of(node);
				return bytes ? std::optional(SizeSpec{*bytes, 0}) : std::nullopt;
			});
}

template <typename Field> OptionKey nodes(const char *table, Field field)
{
	return make_key(table, "nodes",
			"\"auto\", or different NUMA node ids such as [0, 1] or \"0,1\"", field,
			nodes_of);
}

template <typename Field> OptionKey weights(const char *table, Field field)
{
	return make_key(table, "weights",
			"\"auto\", or a whole number from 1 to 1000 for each node, such as [3, 1]",
			field, weights_of);
}

template <typename Field> OptionKey quota(const char *table, const char *name, Field field)
{
	OptionKey key = make_key(table, name, "bytes such as \"64GiB\", or \"none\"", field,
				 [](const toml::node &node) -> std::optional<uint64_t> {
					 if (node.value_exact<std::string>() == "none")
						 return no_quota;
					 return bytes_of(node);
				 });
	key.show = [=](const Options &options) {
		return quota_text(field(const_cast<Options &>(options)));
	};
	return key;
}

template <typename Field> OptionKey uids(const char *table, const char *name, Field field)
{
	return make_key(table, name, "user ids such as [1001, 1002]", field,
			[](const toml::node &node) -> std::optional<std::vector<uint32_t>> {
				std::vector<uint32_t> ids;
				const toml::array *array = node.as_array();
				if (!array)
					return {};
				for (auto &&item : *array) {
					auto id = item.value_exact<int64_t>();
					if (!id || *id < 0 || *id >= UINT32_MAX)
						return {};
					ids.push_back(static_cast<uint32_t>(*id));
				}
				return ids;
			});
}

} // namespace

/* Each key stands on one line; clang-format would take four. */
#define FIELD(path)               \
	[](Options & o) -> auto & \
	{                         \
		return o.path;    \
	}
/* clang-format off */
std::vector<OptionKey> option_keys()
{
	return {
		socket("daemon", "socket", FIELD(daemon.socket)),
		choice("daemon", "log_level", {"error", "warning", "info", "debug"}, FIELD(daemon.log_level)),
		path("daemon", "measured", FIELD(daemon.measured)),
		number("daemon", "interval_ms", 1, 10000, FIELD(daemon.interval_ms)),
		flag("daemon", "enabled", FIELD(daemon.enabled)),
		limit("hot", FIELD(hot.limit)),
		nodes("hot", FIELD(hot.nodes)),
		weights("hot", FIELD(hot.weights)),
		number("hot", "high_permil", 1, 1000, FIELD(hot.high_permil)),
		number("hot", "low_permil", 1, 1000, FIELD(hot.low_permil)),
		limit("warm", FIELD(warm.limit)),
		nodes("warm", FIELD(warm.nodes)),
		weights("warm", FIELD(warm.weights)),
		path("cold", "path", FIELD(cold.path)),
		paths("cold", "more_paths", FIELD(cold.more_paths)),
		bytes("cold", "size", kMinStoreBytes, FIELD(cold.size_bytes)),
		number("cold", "queue_depth", 1, 1024, FIELD(cold.queue_depth)),
		number("cold", "orphan_grace_s", 1, 86400, FIELD(cold.orphan_grace_s)),
		number("cold", "write_MBps", 0, 1000000, FIELD(cold.write_MBps)),
		choice("cold", "wipe", {"none", "discard", "secure"}, FIELD(cold.wipe)),
		choice("cold", "format", {"raw", "fp8", "int8", "int4"}, FIELD(cold.format)),
		bytes("objects", "size", 0, FIELD(objects.size_bytes)),
		number("objects", "chunk_KiB", 4, 1024, FIELD(objects.chunk_KiB)),
		number("mover", "max_MBps", 1, 1000000, FIELD(mover.max_MBps)),
		flag("mover", "latency_gate", FIELD(mover.latency_gate)),
		choice("sampling", "source", {"auto", "pmu", "off"}, FIELD(sampling.source)),
		choice("sampling", "way", {"accessed", "refault"}, FIELD(sampling.way)),
		number("sampling", "interval_ms", CXL_KV_SAMPLE_MIN_INTERVAL_MS,
		       CXL_KV_SAMPLE_MAX_INTERVAL_MS, FIELD(sampling.interval_ms)),
		number("sampling", "min_interval_ms", 0, CXL_KV_SAMPLE_MAX_INTERVAL_MS, FIELD(sampling.min_interval_ms)),
		number("sampling", "cpu_permil", 1, 1000, FIELD(sampling.cpu_permil)),
		flag("sampling", "flush_tlb", FIELD(sampling.flush_tlb)),
		choice("policy", "preset", {"adaptive", "paper"}, FIELD(policy.preset)),
		number("policy", "alpha", 0.0001, 1, FIELD(policy.alpha)),
		number("policy", "access_mass", 0, 1, FIELD(policy.access_mass)),
		number("policy", "decay_steps", 1, 1e9, FIELD(policy.decay_steps)),
		number("policy", "anchor_blocks", 0, 1024, FIELD(policy.anchor_blocks)),
		number("policy", "head_floor", 0, 1, FIELD(policy.head_floor)),
		number("policy", "prefetch_window_tokens", 0, 1e6, FIELD(policy.prefetch_window_tokens)),
		number("policy", "prefetch_layers", 0, 64, FIELD(policy.prefetch_layers)),
		number("policy", "phase_ratio", 1, 1e6, FIELD(policy.phase_ratio)),
		number("policy", "phase_hysteresis", 0.01, 1, FIELD(policy.phase_hysteresis)),
		number("policy", "reuse_half_life_steps", 100, 1e9, FIELD(policy.reuse_half_life_steps)),
		number("policy", "promote_score", 0, 1, FIELD(policy.promote_score)),
		number("policy", "demote_score", 0, 1, FIELD(policy.demote_score)),
		number("policy", "min_residency_ms", 0, 16000, FIELD(policy.min_residency_ms)),
		number("policy", "move_residency_ms", 0, 16000, FIELD(policy.move_residency_ms)),
		number("policy", "refusal_ms", 1, 250, FIELD(policy.refusal_ms)),
		number("policy", "order_timeout_ms", 100, 16000, FIELD(policy.order_timeout_ms)),
		number("policy", "wake_ms", 100, 600000, FIELD(policy.wake_ms)),
		number("policy", "max_extent_bytes", 4096, 2 << 20, FIELD(policy.max_extent_bytes)),
		number("session", "idle_ms", 1, 604800000, FIELD(policy.session.idle_ms)),
		number("session", "resume_ms", 0, 604800000, FIELD(policy.session.resume_ms)),
		number("session", "warm_ms", 0, 604800000, FIELD(policy.session.warm_ms)),
		number("session", "cold_ms", 0, 604800000, FIELD(policy.session.cold_ms)),
		number("session", "drop_ms", 0, 604800000, FIELD(policy.session.drop_ms)),
		number("session", "min_residency_ms", 0, 604800000, FIELD(policy.session.min_residency_ms)),
		number("session", "reserve_blocks", 0, 1024, FIELD(policy.session.reserve_blocks)),
		number("session", "max_wakes", 1, 4096, FIELD(policy.session.max_wakes)),
		number("session", "max_wake_permil", 1, 1000, FIELD(policy.session.max_wake_permil)),
		number("session", "lease_limit_ms", 0, 604800000, FIELD(lease_limit_ms)),
		quota("tenant.default", "hot", FIELD(default_tenant.quota.hot)),
		quota("tenant.default", "warm", FIELD(default_tenant.quota.warm)),
		quota("tenant.default", "cold", FIELD(default_tenant.quota.cold)),
		uids("tenant.default", "uids", FIELD(default_tenant.uids)),
	};
}
/* clang-format on */
#undef FIELD

} // namespace cxlkv
