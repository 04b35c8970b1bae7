/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "options.h"

#include "base/read_file.h"
#include "option_keys.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>
#include <sstream>
#include <utility>

extern char **environ;

namespace cxlkv {

namespace {

constexpr uint64_t max_config_bytes = 16 << 20;

/* What applies while the daemon runs; the rest is in use in places that only a start can change. */
bool applies_live(const OptionKey &key)
{
	static const char *const live[] = {"daemon.log_level",         "daemon.interval_ms",
					   "daemon.enabled",           "hot.high_permil",
					   "hot.low_permil",           "mover.max_MBps",
					   "mover.latency_gate",       "sampling.way",
					   "sampling.interval_ms",     "sampling.cpu_permil",
					   "sampling.min_interval_ms", "sampling.flush_tlb"};
	if (key.table == "session")
		return !key.name.starts_with("max_wake");
	return key.table == "policy" || std::ranges::find(live, key.full_name()) != std::end(live);
}

std::string shown(const toml::node &node)
{
	std::ostringstream text;

	node.visit([&](auto &&n) { text << n; });
	return text.str();
}

std::string_view trimmed(std::string_view text)
{
	constexpr const char *blanks = " \t\r";
	size_t first = text.find_first_not_of(blanks);

	return first == std::string_view::npos
		       ? ""
		       : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/* Text that is no TOML has keys all the same: that of a line, or of the last one before it. No
 * more of it than a person would call a key. */
std::string key_at(const std::string &text, size_t line)
{
	constexpr size_t longest = 80;
	std::istringstream in(text);
	std::string table, key;
	size_t number = 0;

	for (std::string raw; number < line && std::getline(in, raw); number++) {
		std::string_view said = trimmed(raw);
		if (said.empty() || said[0] == '#')
			continue;
		if (said[0] == '[') {
			size_t end = std::min(said.find(']'), said.size());
			table = trimmed(said.substr(1, end - 1));
			key = "";
		} else {
			key = trimmed(said.substr(0, said.find_first_of("= \t")));
		}
	}
	if (!table.empty() && !key.empty())
		table += ".";
	return (table + key).substr(0, longest);
}

constexpr const char *kTenant = "tenant.";

bool same_but_for_case(const std::string &one, const std::string &other)
{
	return std::ranges::equal(one, other, [](unsigned char a, unsigned char b) {
		return tolower(a) == tolower(b);
	});
}

/* Reads one configuration after the other into the same options. */
class Loader {
public:
	Result<> file(const std::string &name);
	/* CXL_KV_HOT__LIMIT=25% is [hot] limit. The value is TOML, or else taken as a string. */
	Result<> environment();
	[[nodiscard]] Result<> no_slip(const std::string &variable) const;
	/* The same for one key and value. */
	Result<> text(std::string table, std::string name, const std::string &value,
		      const std::string &where);
	void begin_source() { nr_sources_++; }
	/* What no key can see by itself. */
	[[nodiscard]] Result<> check_together() const;

	Options options;

private:
	Result<> table(const std::string &name, const toml::node &node, const std::string &file);
	Result<> set(const std::string &table, const std::string &name, const toml::node &node,
		     const std::string &where);
	/* named: the table as the person wrote it. */
	Result<> set_key(const std::string &table, const std::string &named,
			 const std::string &name, const toml::node &node, const std::string &where);
	Result<> tenants(const toml::node &node, const std::string &file);
	Result<> set_tenant(const std::string &tenant, const std::string &name,
			    const toml::node &node, const std::string &where);
	/* Where the later one of two keys was set. */
	[[nodiscard]] std::string where(const std::string &one, const std::string &other) const;

	struct Origin {
		std::pair<size_t, size_t>
			order; /* source, line: TOML's tables are sorted by name */
		std::string where;
	};
	size_t nr_sources_ = 0;
	const std::vector<OptionKey> keys_ = option_keys();
	std::map<std::string, Origin> origins_;
};

Result<> Loader::set(const std::string &table, const std::string &name, const toml::node &node,
		     const std::string &where)
{
	if (table.starts_with(kTenant) && table != "tenant.default")
		return set_tenant(table.substr(strlen(kTenant)), name, node, where);
	return set_key(table, table, name, node, where);
}

Result<> Loader::set_key(const std::string &table, const std::string &named,
			 const std::string &name, const toml::node &node, const std::string &where)
{
	std::string known;

	for (const OptionKey &key : keys_) {
		if (key.table != table)
			continue;
		known += (known.empty() ? "" : ", ") + key.name;
		if (key.name != name)
			continue;
		if (!key.set(options, node))
			return error(EINVAL,
				     fmt::format("{}: {}.{} = {} is not allowed; it takes {}",
						 where, named, name, shown(node), key.allowed));
		origins_[key.full_name()] = {{nr_sources_, node.source().begin.line}, where};
		return ok();
	}
	if (!known.empty())
		return error(EINVAL, fmt::format("{}: unknown key {}.{}; [{}] has: {}", where,
						 named, name, named, known));
	for (const OptionKey &key : keys_)
		if (known.find(key.table) == std::string::npos)
			known += (known.empty() ? "" : ", ") + key.table;
	return error(EINVAL,
		     fmt::format("{}: unknown table [{}]; there are: {}", where, named, known));
}

/* Any tenant's keys are those of the default one. */
Result<> Loader::set_tenant(const std::string &tenant, const std::string &name,
			    const toml::node &node, const std::string &where)
{
	bool good = !tenant.empty() && tenant.size() <= 64 &&
		    std::ranges::all_of(tenant, [](unsigned char c) {
			    return isalnum(c) || c == '-' || c == '_' || c == '.';
		    });
	if (!good)
		return error(EINVAL, fmt::format("{}: tenant \"{}\": a name has up to 64 letters, "
						 "digits, '-', '_' and '.'",
						 where, tenant));
	auto is_it = [&](const Tenant &known) { return known.name == tenant; };
	auto at = std::ranges::find_if(options.tenants, is_it);
	if (at == options.tenants.end())
		at = options.tenants.insert(at, Tenant{tenant, {}, {}});
	std::swap(options.default_tenant, *at);
	auto done = set_key("tenant.default", kTenant + tenant, name, node, where);
	std::swap(options.default_tenant, *at);
	return done;
}

/* [tenant.NAME] of the file. */
Result<> Loader::tenants(const toml::node &node, const std::string &file)
{
	const std::string where = fmt::format("{}:{}", file, node.source().begin.line);

	if (!node.is_table())
		return error(EINVAL, where + ": tenant is a table of tenants; write [tenant.NAME]");
	for (auto &&[name, value] : *node.as_table()) {
		if (!value.is_table())
			return error(EINVAL, fmt::format("{}:{}: tenant.{} is a table; write "
							 "[tenant.{}], and its keys below",
							 file, value.source().begin.line,
							 name.str(), name.str()));
		for (auto &&[key, inner] : *value.as_table())
			if (auto done = set(kTenant + std::string(name.str()),
					    std::string(key.str()), inner,
					    fmt::format("{}:{}", file, inner.source().begin.line));
			    !done)
				return done;
		if (name.str() != "default" && value.as_table()->empty())
			options.tenants.push_back(Tenant{std::string(name.str()), {}, {}});
	}
	return ok();
}

Result<> Loader::table(const std::string &name, const toml::node &node, const std::string &file)
{
	const std::string where = fmt::format("{}:{}", file, node.source().begin.line);
	if (name == "tenant")
		return tenants(node, file);
	bool known =
		std::ranges::any_of(keys_, [&](const OptionKey &k) { return k.table == name; });

	if (!known && !node.is_table() && !node.is_array_of_tables())
		return error(EINVAL,
			     fmt::format("{}: key {} stands outside a table; write its [table] "
					 "above it",
					 where, name));
	if (!known)
		return set(name, "", node, where); /* which says what tables there are */
	if (node.is_array_of_tables())
		return error(EINVAL, fmt::format("{}: [[{}]] makes a list of tables; write [{}]",
						 where, name, name));
	if (!node.is_table())
		return error(EINVAL,
			     fmt::format("{0}: {1} = {2} is not allowed; {1} is a table: write "
					 "[{1}], and its keys on the lines below",
					 where, name, shown(node)));
	for (auto &&[key, value] : *node.as_table())
		if (auto done = set(name, std::string(key.str()), value,
				    fmt::format("{}:{}", file, value.source().begin.line));
		    !done)
			return done;
	return ok();
}

Result<> Loader::file(const std::string &name)
{
	std::error_code ec;
	toml::table root;

	nr_sources_++;
	/* The daemon would stand still in open() until somebody writes. */
	if (std::filesystem::is_fifo(name, ec))
		return error(EINVAL, name + ": is a pipe, not a configuration file");
	if (std::filesystem::is_directory(name, ec))
		return error(EISDIR, name + ": is a directory, not a configuration file");
	auto text = read_file(name, max_config_bytes);
	if (!text)
		return text.error();
	try {
		root = toml::parse(*text, name);
	} catch (const toml::parse_error &e) {
		size_t line = e.source().begin.line;
		return error(EINVAL, fmt::format("{}:{}: {}: {}", name, line, key_at(*text, line),
						 e.description()));
	}
	for (auto &&[key, node] : root)
		if (auto done = table(std::string(key.str()), node, name); !done)
			return done;
	return ok();
}

/* A variable without "__" is somebody else's, unless it is a key but for that. */
Result<> Loader::no_slip(const std::string &variable) const
{
	for (const OptionKey &key : keys_) {
		std::string meant = fmt::format("CXL_KV_{}__{}", key.table, key.name);
		std::string slip = fmt::format("CXL_KV_{}_{}", key.table, key.name);
		if (!same_but_for_case(variable, slip))
			continue;
		std::ranges::transform(meant, meant.begin(),
				       [](unsigned char c) { return toupper(c); });
		return error(EINVAL, fmt::format("environment {}: {}.{} takes two underscores: {}",
						 variable, key.table, key.name, meant));
	}
	return ok();
}

Result<> Loader::environment()
{
	begin_source();
	for (char **entry = environ; *entry; entry++) {
		std::string line = *entry;
		size_t equals = line.find('='), split = line.find("__");
		if (!line.starts_with("CXL_KV_") || equals == std::string::npos)
			continue;
		std::string variable = line.substr(0, equals), value = line.substr(equals + 1);
		if (split > equals) {
			if (auto done = no_slip(variable); !done)
				return done;
			continue;
		}
		if (auto done = text(variable.substr(7, split - 7), variable.substr(split + 2),
				     value, "environment " + variable);
		    !done)
			return done;
	}
	return ok();
}

Result<> Loader::text(std::string table, std::string name, const std::string &value,
		      const std::string &where)
{
	/* CXL_KV_TENANT_NAME__HOT is [tenant.name] hot. */
	if (table.size() > 7 && same_but_for_case(table.substr(0, 7), "tenant_")) {
		auto lower = [](unsigned char c) { return tolower(c); };
		std::ranges::transform(table, table.begin(), lower);
		std::ranges::transform(name, name.begin(), lower);
		table[6] = '.';
	}
	for (const OptionKey &key : keys_) { /* which keep the case of their units: max_MBps */
		if (same_but_for_case(table, key.table))
			table = key.table;
		if (same_but_for_case(table, key.table) && same_but_for_case(name, key.name))
			name = key.name;
	}
	toml::table parsed;
	try {
		parsed = toml::parse("value = " + value);
	} catch (const toml::parse_error &) {
	}
	if (parsed.size() != 1) /* a plain word, or lines of more than a value */
		parsed = toml::table{{"value", value}};
	return set(table, name, *parsed.get("value"), where);
}

std::string Loader::where(const std::string &one, const std::string &other) const
{
	auto a = origins_.find(one), b = origins_.find(other);

	if (a == origins_.end() || (b != origins_.end() && b->second.order > a->second.order))
		std::swap(a, b);
	return a == origins_.end() ? "defaults" : a->second.where;
}

Result<> Loader::check_together() const
{
	if (options.hot.low_permil >= options.hot.high_permil)
		return error(
			EINVAL,
			fmt::format("{}: hot.low_permil = {} must be below hot.high_permil = {}",
				    where("hot.low_permil", "hot.high_permil"),
				    options.hot.low_permil, options.hot.high_permil));
	const uint32_t shortest_ms = options.sampling.min_interval_ms;
	if (shortest_ms && (shortest_ms < CXL_KV_SAMPLE_MIN_INTERVAL_MS ||
			    shortest_ms > options.sampling.interval_ms))
		return error(
			EINVAL,
			fmt::format("{}: sampling.min_interval_ms = {} must be 0, or from {} to "
				    "sampling.interval_ms = {}",
				    where("sampling.min_interval_ms", "sampling.interval_ms"),
				    shortest_ms, CXL_KV_SAMPLE_MIN_INTERVAL_MS,
				    options.sampling.interval_ms));
	for (int node : options.hot.nodes)
		if (std::ranges::find(options.warm.nodes, node) != options.warm.nodes.end())
			return error(EINVAL,
				     fmt::format("{}: node {} is in hot.nodes and in warm.nodes; a "
						 "node is in one tier",
						 where("hot.nodes", "warm.nodes"), node));
	if (!std::has_single_bit(options.objects.chunk_KiB))
		return error(EINVAL,
			     fmt::format("{}: objects.chunk_KiB = {} must be a power of two",
					 where("objects.chunk_KiB", "objects.chunk_KiB"),
					 options.objects.chunk_KiB));
	std::set<std::string> paths = {options.cold.path};
	for (const std::string &path : options.cold.more_paths)
		if (!paths.insert(path).second)
			return error(EINVAL,
				     fmt::format("{}: {} is listed twice; each of the "
						 "store's files is a file of its own",
						 where("cold.path", "cold.more_paths"), path));
	if (std::string wrong = check_options(options.policy); !wrong.empty())
		return error(EINVAL,
			     fmt::format("{}: policy.{}",
					 where("policy.promote_score", "policy.demote_score"),
					 wrong));
	if (std::string wrong = check_session_options(options.policy.session); !wrong.empty())
		return error(EINVAL,
			     fmt::format("{}: session.{}",
					 where("session." + wrong.substr(0, wrong.find(' ')), ""),
					 wrong));
	return ok();
}

} // namespace

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
	for (std::filesystem::directory_iterator at(file + ".d", ec), end; !ec && at != end;
	     at.increment(ec))
		if (at->path().extension() == ".toml")
			drop_ins.push_back(at->path());
	if (ec && ec != std::errc::no_such_file_or_directory)
		return error(ec.value(), file + ".d: " + ec.message());
	std::ranges::sort(drop_ins);
	files.insert(files.end(), drop_ins.begin(), drop_ins.end());
	return files;
}

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
	Loader loader;

	auto files = config_files(file, may_be_absent);
	if (!files)
		return files.error();
	for (const std::string &name : *files)
		if (auto loaded = loader.file(name); !loaded)
			return loaded.error();
	if (auto loaded = loader.environment(); !loaded)
		return loaded.error();
	if (auto checked = loader.check_together(); !checked)
		return checked.error();
	return loader.options;
}

Result<Options> with_settings(const Options &options,
			      const std::vector<std::pair<std::string, std::string>> &settings)
{
	Loader loader;

	loader.options = options;
	loader.begin_source();
	for (const auto &[key, value] : settings) {
		size_t dot = key.rfind('.'); /* tenant.default.hot is hot of [tenant.default] */
		if (dot == std::string::npos)
			return error(EINVAL, key + ": a key is TABLE.NAME, such as mover.max_MBps");
		if (auto done = loader.text(key.substr(0, dot), key.substr(dot + 1), value, "tune");
		    !done)
			return done.error();
	}
	if (auto checked = loader.check_together(); !checked)
		return checked.error();
	return loader.options;
}

std::vector<OptionValue> option_values(const Options &options)
{
	std::vector<OptionValue> values;

	for (const OptionKey &key : option_keys())
		values.push_back(
			{key.full_name(), key.show(options), key.allowed, applies_live(key)});
	return values;
}

std::vector<OptionChange> apply_live(Options &options, const Options &wanted)
{
	std::vector<OptionChange> changes;

	for (const OptionKey &key : option_keys()) {
		std::string before = key.show(options), after = key.show(wanted);
		if (before == after)
			continue;
		changes.push_back({key.full_name(), before, after, applies_live(key)});
		if (changes.back().live)
			key.copy(options, wanted);
	}
	if (options.tenants != wanted.tenants)
		changes.push_back({"tenant.*", "as it is", "another table of tenants", false});
	return changes;
}

std::string describe_options()
{
	std::string out;
	for (const OptionKey &key : option_keys())
		out += fmt::format("{}: {}{}\n", key.full_name(), key.allowed,
				   applies_live(key) ? "" : "; at a start only");
	return out;
}

} // namespace cxlkv
