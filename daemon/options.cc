/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <toml++/toml.h>

extern char **environ;

namespace cxlkv {

namespace {

using Set = std::function<bool(Options &, const toml::node &)>;

/* One key of the file: how it is set, and what a person is told when it can't be. */
struct Key {
	const char *table;
	const char *name;
	std::string allowed;
	Set set; /* false: the value is not allowed */
};

template <typename T>
Key number(const char *table, const char *name, double min, double max,
	   std::function<T &(Options &)> field)
{
	return {table, name, fmt::format("a number from {} to {}", min, max),
		[=](Options &options, const toml::node &node) {
			std::optional<double> value;
			if (std::is_integral_v<T> ? node.is_integer() : node.is_number())
				value = node.value<double>();
			if (!value || !(*value >= min && *value <= max))
				return false;
			field(options) = static_cast<T>(*value);
			return true;
		}};
}

Key text(const char *table, const char *name, std::vector<std::string> choices,
	 std::function<std::string &(Options &)> field)
{
	std::string allowed = choices.empty() ? "a path" : "one of";
	for (const auto &choice : choices)
		allowed += " \"" + choice + "\"";
	return {table, name, allowed, [=](Options &options, const toml::node &node) {
			auto value = node.value<std::string>();
			if (!value || value->empty() || value->find('\0') != std::string::npos)
				return false;
			if (!choices.empty() && std::ranges::find(choices, *value) == choices.end())
				return false;
			field(options) = *value;
			return true;
		}};
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

Key size(const char *table, std::function<SizeSpec &(Options &)> field)
{
	return {table, "limit",
		"bytes such as \"24GiB\", or a share of the tier's nodes such as \"25%\"",
		[=](Options &options, const toml::node &node) {
			auto value = node.value<std::string>();
			if (value && value->ends_with('%')) {
				char *end = nullptr;
				double percent = strtod(value->c_str(), &end);
				if (*end != '%' || end[1] || !(percent > 0 && percent <= 100))
					return false;
				field(options) = {0, static_cast<uint32_t>(percent * 10)};
				return true;
			}
			auto bytes = bytes_of(node);
			if (!bytes)
				return false;
			field(options) = {*bytes, 0};
			return true;
		}};
}

Key nodes(const char *table, std::function<std::vector<int> &(Options &)> field)
{
	return {table, "nodes", "\"auto\", or NUMA node ids such as [0, 1] or \"0,1\"",
		[=](Options &options, const toml::node &node) {
			std::vector<int> ids;
			auto add = [&](int64_t id) {
				ids.push_back(static_cast<int>(id));
				return id >= 0 && id < 1024;
			};
			if (auto value = node.value<std::string>(); value && *value != "auto") {
				for (size_t at = 0; at <= value->size();) {
					size_t comma =
						std::min(value->find(',', at), value->size());
					std::string part = value->substr(at, comma - at);
					if (part.empty() || part.size() > 4 ||
					    !std::ranges::all_of(
						    part,
						    [](unsigned char c) { return isdigit(c); }) ||
					    !add(atoi(part.c_str())))
						return false;
					at = comma + 1;
				}
			} else if (auto array = node.as_array()) {
				for (auto &&item : *array)
					if (!item.is_integer() || !add(item.as_integer()->get()))
						return false;
			} else if (node.is_integer()) {
				if (!add(node.as_integer()->get()))
					return false;
			} else if (!value) {
				return false;
			}
			field(options) = ids;
			return true;
		}};
}

template <typename T> using Field = std::function<T &(Options &)>;

std::vector<Key> all_keys()
{
	using U32 = Field<uint32_t>;
	using F64 = Field<double>;
	std::vector<Key> keys =
		{
			text(
				"daemon", "socket", {},
				[](Options & o) -> auto & { return o.daemon.socket; }),
			text(
				"daemon", "log_level", {"error", "warning", "info", "debug"},
				[](Options & o) -> auto & { return o.daemon.log_level; }),
			number("daemon", "interval_ms", 1, 10000,
			       U32([](Options & o) -> auto & { return o.daemon.interval_ms; })),
			size(
				"hot", [](Options & o) -> auto & { return o.hot.limit; }),
			nodes(
				"hot", [](Options & o) -> auto & { return o.hot.nodes; }),
			number("hot", "high_permil", 1, 1000,
			       U32([](Options & o) -> auto & { return o.hot.high_permil; })),
			number("hot", "low_permil", 1, 1000,
			       U32([](Options & o) -> auto & { return o.hot.low_permil; })),
			size(
				"warm", [](Options & o) -> auto & { return o.warm.limit; }),
			nodes(
				"warm", [](Options & o) -> auto & { return o.warm.nodes; }),
			text(
				"cold", "path", {},
				[](Options & o) -> auto & { return o.cold.path; }),
			{"cold", "size", "bytes such as \"64GiB\"",
			 [](Options &o, const toml::node &node) {
				 auto bytes = bytes_of(node);
				 if (bytes)
					 o.cold.size_bytes = *bytes;
				 return bytes.has_value();
			 }},
			number("cold", "queue_depth", 1, 1024,
			       U32([](Options & o) -> auto & { return o.cold.queue_depth; })),
			number("cold", "orphan_grace_s", 1, 86400,
			       U32([](Options & o) -> auto & { return o.cold.orphan_grace_s; })),
			number("cold", "write_MBps", 0, 1000000,
			       U32([](Options & o) -> auto & { return o.cold.write_MBps; })),
			text(
				"cold", "wipe", {"none", "discard", "secure"},
				[](Options & o) -> auto & { return o.cold.wipe; }),
			number("mover", "max_MBps", 1, 1000000,
			       U32([](Options & o) -> auto & { return o.mover.max_MBps; })),
			text(
				"sampling", "source", {"auto", "pmu", "off"},
				[](Options & o) -> auto & { return o.sampling.source; }),
			text(
				"sampling", "way", {"accessed", "refault"},
				[](Options & o) -> auto & { return o.sampling.way; }),
			number("sampling", "interval_ms", CXL_KV_SAMPLE_MIN_INTERVAL_MS,
			       CXL_KV_SAMPLE_MAX_INTERVAL_MS,
			       U32([](Options & o) -> auto & { return o.sampling.interval_ms; })),
			number("sampling", "cpu_permil", 1, 1000,
			       U32([](Options & o) -> auto & { return o.sampling.cpu_permil; })),
			{"sampling", "flush_tlb", "true or false",
			 [](Options &o, const toml::node &node) {
				 auto value = node.value<bool>();
				 o.sampling.flush_tlb = value.value_or(false);
				 return value.has_value();
			 }},
			text(
				"policy", "preset", {"adaptive", "paper"},
				[](Options & o) -> auto & { return o.policy.preset; }),
			number("policy", "alpha", 0.0001, 1,
			       F64([](Options & o) -> auto & { return o.policy.alpha; })),
			number("policy", "access_mass", 0, 1,
			       F64([](Options & o) -> auto & { return o.policy.access_mass; })),
			number("policy", "decay_steps", 1, 1e9,
			       F64([](Options & o) -> auto & { return o.policy.decay_steps; })),
			number("policy", "anchor_blocks", 0, 1024,
			       U32([](Options & o) -> auto & { return o.policy.anchor_blocks; })),
			number("policy", "head_floor", 0, 1,
			       F64([](Options & o) -> auto & { return o.policy.head_floor; })),
			number("policy", "prefetch_window_tokens", 0, 1e6,
			       U32([](Options & o) -> auto & {
				       return o.policy.prefetch_window_tokens;
			       })),
			number("policy", "prefetch_layers", 0, 64,
			       U32([](Options & o) -> auto & { return o.policy.prefetch_layers; })),
			number("policy", "phase_ratio", 1, 1e6,
			       F64([](Options & o) -> auto & { return o.policy.phase_ratio; })),
			number("policy", "promote_score", 0, 1,
			       F64([](Options & o) -> auto & { return o.policy.promote_score; })),
			number("policy", "demote_score", 0, 1,
			       F64([](Options & o) -> auto & { return o.policy.demote_score; })),
			number("policy", "min_residency_ms", 0, 16000, U32([
			       ](Options & o) -> auto & { return o.policy.min_residency_ms; })),
			number("policy", "max_extent_bytes", 4096, 2 << 20, U32([
			       ](Options & o) -> auto & { return o.policy.max_extent_bytes; })),
		};
	return keys;
}

std::string shown(const toml::node &node)
{
	std::string out;
	node.visit([&](auto &&n) {
		std::ostringstream text;
		text << n;
		out = text.str();
	});
	return out;
}

Result<> set_key(Options &options, const std::vector<Key> &keys, const std::string &table,
		 const std::string &name, const toml::node &node, const std::string &where)
{
	auto key = std::ranges::find_if(
		keys, [&](const Key &k) { return table == k.table && name == k.name; });
	if (key == keys.end()) {
		std::string known;
		for (const Key &k : keys)
			if (table == k.table)
				known += std::string(known.empty() ? "" : ", ") + k.name;
		return error(EINVAL, known.empty()
					     ? fmt::format("{}: unknown table [{}]", where, table)
					     : fmt::format("{}: unknown key {}.{}; [{}] has: {}",
							   where, table, name, table, known));
	}
	if (!key->set(options, node))
		return error(EINVAL, fmt::format("{}: {}.{} = {} is not allowed; it takes {}",
						 where, table, name, shown(node), key->allowed));
	return ok();
}

Result<> load_file(Options &options, const std::vector<Key> &keys, const std::string &file)
{
	toml::table root;
	try {
		root = toml::parse_file(file);
	} catch (const toml::parse_error &e) {
		return error(EINVAL, fmt::format("{}:{}: {}", file, e.source().begin.line,
						 e.description()));
	} catch (const std::exception &e) {
		return error(EIO, fmt::format("{}: {}", file, e.what()));
	}
	for (auto &&[table, node] : root) {
		std::string at = fmt::format("{}:{}", file, node.source().begin.line);
		if (!node.is_table())
			return error(
				EINVAL,
				fmt::format(
					"{}: key {} stands outside a table; write [table] above it",
					at, std::string_view(table.str())));
		for (auto &&[name, value] : *node.as_table()) {
			auto set = set_key(options, keys, std::string(table.str()),
					   std::string(name.str()), value,
					   fmt::format("{}:{}", file, value.source().begin.line));
			if (!set)
				return set;
		}
	}
	return ok();
}

/* CXL_KV_HOT__LIMIT=25% is [hot] limit. The value is TOML, or else taken as a string. */
Result<> load_environment(Options &options, const std::vector<Key> &keys)
{
	for (char **entry = environ; *entry; entry++) {
		std::string text = *entry;
		size_t equals = text.find('=');
		size_t split = text.find("__");
		if (!text.starts_with("CXL_KV_") || split == std::string::npos || split > equals)
			continue;
		std::string variable = text.substr(0, equals), value = text.substr(equals + 1);
		std::string table = variable.substr(7, split - 7),
			    name = variable.substr(split + 2);
		auto lower = [](std::string &s) {
			std::ranges::transform(s, s.begin(),
					       [](unsigned char c) { return tolower(c); });
		};
		lower(table);
		lower(name);
		for (const Key &key : keys) /* keys keep the case of their units: max_MBps */
			if (table == key.table &&
			    std::ranges::equal(
				    name, std::string_view(key.name), [](char a, char b) {
					    return a == static_cast<char>(tolower(
								static_cast<unsigned char>(b)));
				    }))
				name = key.name;
		toml::table parsed;
		try {
			parsed = toml::parse("value = " + value);
		} catch (const toml::parse_error &) {
			parsed.insert("value", value);
		}
		auto set = set_key(options, keys, table, name, *parsed.get("value"),
				   "environment " + variable);
		if (!set)
			return set;
	}
	return ok();
}

Result<> check_together(const Options &options)
{
	if (options.hot.low_permil >= options.hot.high_permil)
		return error(EINVAL,
			     fmt::format("hot.low_permil ({}) must be below hot.high_permil ({})",
					 options.hot.low_permil, options.hot.high_permil));
	for (int node : options.hot.nodes)
		if (std::ranges::find(options.warm.nodes, node) != options.warm.nodes.end())
			return error(
				EINVAL,
				fmt::format("node {} is in hot.nodes and in warm.nodes", node));
	if (options.policy.demote_score > options.policy.promote_score)
		return error(EINVAL, "policy.demote_score must not be above policy.promote_score");
	std::string wrong = check_options(options.policy);
	return wrong.empty() ? ok() : error(EINVAL, "policy: " + wrong);
}

Result<std::vector<std::string>> config_files(const std::string &file, bool may_be_absent)
{
	std::vector<std::string> files;
	std::error_code ec;

	if (file.empty())
		return files;
	if (std::filesystem::is_directory(file, ec)) /* which reads like an empty file */
		return error(EISDIR, file + ": is a directory, not a configuration file");
	if (std::filesystem::exists(file, ec))
		files.push_back(file);
	else if (!may_be_absent)
		return error(ENOENT, file + ": no such file");
	std::vector<std::string> drop_ins;
	for (auto &entry : std::filesystem::directory_iterator(file + ".d", ec))
		if (entry.path().extension() == ".toml")
			drop_ins.push_back(entry.path());
	std::ranges::sort(drop_ins);
	files.insert(files.end(), drop_ins.begin(), drop_ins.end());
	return files;
}

} // namespace

Result<uint64_t> parse_bytes(const std::string &text)
{
	static const struct {
		const char *unit;
		uint64_t factor;
	} units[] = {{"", 1},
		     {"B", 1},
		     {"KiB", 1ull << 10},
		     {"MiB", 1ull << 20},
		     {"GiB", 1ull << 30},
		     {"TiB", 1ull << 40},
		     {"K", 1ull << 10},
		     {"M", 1ull << 20},
		     {"G", 1ull << 30},
		     {"T", 1ull << 40},
		     {"kB", 1000},
		     {"MB", 1000000},
		     {"GB", 1000000000},
		     {"TB", 1000000000000}};
	char *end = nullptr;

	if (text.empty() || !isdigit(static_cast<unsigned char>(text[0])))
		return error(EINVAL, "not a size: " + text);
	double value = strtod(text.c_str(), &end);
	while (*end == ' ')
		end++;
	for (auto &unit : units)
		if (!strcmp(end, unit.unit)) {
			double bytes = value * static_cast<double>(unit.factor);
			if (bytes < 9e18)
				return static_cast<uint64_t>(bytes);
		}
	return error(EINVAL, "not a size: " + text);
}

Result<Options> load_options(const std::string &file, bool may_be_absent)
{
	Options options;
	const std::vector<Key> keys = all_keys();

	auto files = config_files(file, may_be_absent);
	if (!files)
		return files.error();
	for (const std::string &name : *files)
		if (auto loaded = load_file(options, keys, name); !loaded)
			return loaded.error();
	if (auto loaded = load_environment(options, keys); !loaded)
		return loaded.error();
	if (auto checked = check_together(options); !checked)
		return checked.error();
	return options;
}

std::string describe_options()
{
	std::string out;
	for (const Key &key : all_keys())
		out += fmt::format("{}.{}: {}\n", key.table, key.name, key.allowed);
	return out;
}

} // namespace cxlkv
