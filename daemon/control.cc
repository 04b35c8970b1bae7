/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control.h"

#include "base/json_from.h"
#include "control_format.h"
#include "control_line.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace cxlkv {

using nlohmann::json;

namespace {

constexpr size_t kMaxRanges = 4096;

std::optional<Geometry> get_geometry(const json &in)
{
	auto it = in.find("geometry");
	if (it == in.end() || !it->is_object())
		return {};
	Geometry geometry{};
	const std::pair<const char *, uint32_t *> fields[] = {
		{"nr_slots", &geometry.nr_slots},
		{"nr_layers", &geometry.nr_layers},
		{"nr_kv_heads", &geometry.nr_kv_heads},
		{"head_dim", &geometry.head_dim},
		{"elem_bytes", &geometry.elem_bytes},
		{"tokens_per_block", &geometry.tokens_per_block},
		{"tokens_per_slot", &geometry.tokens_per_slot},
		{"block_bytes", &geometry.block_bytes},
	};
	for (auto [name, field] : fields) {
		auto value = get_u32(*it, name);
		if (!value)
			return {};
		*field = *value;
	}
	if (geometry.nr_layers <= CXL_KV_MAX_LAYERS)
		geometry.layer_window.assign(geometry.nr_layers, 0);
	auto windows = in.find("layer_window");
	if (windows != in.end()) {
		if (!windows->is_array() || windows->size() != geometry.layer_window.size())
			return {};
		for (size_t i = 0; i < windows->size(); i++) {
			if (!(*windows)[i].is_number_unsigned() ||
			    (*windows)[i].get<uint64_t>() > UINT32_MAX)
				return {};
			geometry.layer_window[i] = (*windows)[i].get<uint32_t>();
		}
	}
	return geometry;
}

std::optional<std::vector<Extent>> get_ranges(const json &in, const Arena &arena)
{
	auto it = in.find("ranges");
	if (it == in.end() || !it->is_array() || it->size() > kMaxRanges)
		return {};
	std::vector<Extent> extents;
	for (const json &range : *it) {
		if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
		    !range[1].is_number_unsigned())
			return {};
		uint64_t first = range[0].get<uint64_t>(), nr = range[1].get<uint64_t>();
		uint64_t all = arena.geometry.nr_blocks();
		if (nr == 0 || nr > all || first > all - nr)
			return {};
		extents.push_back({arena.options.number, static_cast<uint32_t>(first),
				   static_cast<uint32_t>(nr)});
	}
	return extents;
}

} // namespace

const Control::OpEntry Control::kOps[] = {
	{"hello", &Control::op_hello},
	{"register", &Control::op_register},
	{"unregister", &Control::op_unregister},
	{"make", &Control::op_make},
	{"fetch", &Control::op_fetch},
	{"drop", &Control::op_drop},
	{"session", &Control::op_session},
	{"wake", &Control::op_wake},
	{"park", &Control::op_park},
	{"prefetch", &Control::op_prefetch},
	{"health", &Control::op_health},
	{"status", &Control::op_status},
	{"decide", &Control::op_decide},
	{"list", &Control::op_list},
	{"heads", &Control::op_heads},
	{"pin", &Control::op_pin},
	{"drain", &Control::op_drain},
	{"tune", &Control::op_tune},
	{"record", &Control::op_record},
	{"record_end", &Control::op_record_end},
	{"rings", &Control::op_rings},
	{"buffer", &Control::op_buffer},
	{"buffer_remove", &Control::op_buffer_remove},
	{"namespace", &Control::op_namespace},
	{"namespace_stats", &Control::op_namespace_stats},
	{"namespace_close", &Control::op_namespace_close},
	{"tier_open", &Control::op_tier_open},
	{"tier_close", &Control::op_tier_close},
	{"tier_stats", &Control::op_tier_stats},
	{"advice", &Control::op_advice},
};

ControlSocket::Handler Control::handler()
{
	return {[this](const Peer &peer, const std::string &text, Files &files) {
			return line(peer, text, files);
		},
		[this](const Peer &peer) {
			clients_.erase(peer.connection);
			parts_.recorder.hangup(peer.connection);
			parts_.registry.hangup(peer);
			parts_.objects.hangup(peer.connection);
		}};
}

bool Control::line(const Peer &peer, const std::string &text, Files &files)
{
	auto request = json_from(text);
	Answer answer{&parts_.socket, peer.connection, nullptr};

	if (!request || !request->is_object()) {
		answer.fail(EPROTO, fmt::format("a request is one JSON object on one line, nested "
						"at most {} deep",
						kMaxJsonDepth));
		return false;
	}
	const json &in = *request;
	if (in.contains("id") && (in["id"].is_number() || in["id"].is_string()))
		answer.id = in["id"];
	std::string op = get_text(in, "op");
	for (const OpEntry &entry : kOps) {
		if (op == entry.name) {
			(this->*entry.op)(peer, in, answer, files);
			return true;
		}
	}
	answer.fail(EOPNOTSUPP, "unknown op: " + op.substr(0, 32));
	return true;
}

void Control::op_hello(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto version = get_u32(in, "version");

	if (version && *version != CXL_KV_ABI_VERSION)
		return answer.fail(EPROTO,
				   fmt::format("this daemon speaks version {}, the client {}",
					       CXL_KV_ABI_VERSION, *version));
	const std::string declared = get_text(in, "tenant");
	const int tenant = parts_.tenants.identify(peer.uid, declared);
	if (tenant < 0)
		return answer.fail(EACCES,
				   fmt::format("tenant \"{}\" is not in the configuration, or not "
					       "for user {} to be",
					       declared.substr(0, 64), peer.uid));
	clients_[peer.connection] = {get_text(in, "name").substr(0, 64),
				     static_cast<uint32_t>(tenant)};
	answer.ok({{"version", CXL_KV_ABI_VERSION},
		   {"daemon", CXL_KV_VERSION},
		   {"mode", parts_.registry.module_fd() >= 0 ? "module" : "native"}},
		  parts_.uffd_device);
}

/* Before the client hears of its arena it counts as its tenant's. */
void Control::registered(const Answer &answer, uint32_t tenant,
			 const Result<std::shared_ptr<ArenaEntry>> &result)
{
	if (!result)
		return answer.fail(result.error().code, result.error().what);
	Arena &arena = *(*result)->arena;
	arena.tenant = tenant;
	arena.tenant_limit_bytes = parts_.tenants[tenant].quota.memory(parts_.has_warm);
	answer.ok({{"arena", arena.options.number}, {"key", std::to_string(arena.options.key)}});
}

void Control::op_register(const Peer &peer, const json &in, Answer answer, Files &files)
{
	const uint32_t tenant = clients_[peer.connection].tenant;
	auto format = get_cold_format(in, parts_.cold_format);
	if (!format)
		return answer.fail(format.error().code, format.error().what);
	auto done = [this, answer, tenant,
		     format = *format](const Result<std::shared_ptr<ArenaEntry>> &result) {
		if (result)
			set_cold_format(*(*result)->arena, format);
		registered(answer, tenant, result);
	};
	if (auto module_id = get_u32(in, "module_arena"))
		return parts_.registry.claim(peer, *module_id, clients_[peer.connection].name,
					     done);
	auto geometry = get_geometry(in);
	auto base = get_u64_text(in, "base");
	auto ring_entries = get_u32(in, "ring_entries");
	auto key = get_u64_text(in, "key");
	Files taken;

	for (int i = 0; i < 4 && !files.empty(); i++) {
		taken.push_back(std::move(files.front()));
		files.pop_front();
	}
	if (!geometry || !base || !ring_entries || (in.contains("key") && !key.value_or(0)))
		return answer.fail(EINVAL, "register needs geometry, base and ring_entries; key, "
					   "if any, as a decimal string above 0");
	if (std::string wrong = check_geometry(*geometry); !wrong.empty())
		return answer.fail(EINVAL, wrong);
	if (taken.size() != 4)
		return answer.fail(EINVAL,
				   "register needs four files: memory, userfaultfd, table, ring");

	ArenaOptions options;
	options.client_base = *base;
	options.ring_entries = *ring_entries;
	options.name = clients_[peer.connection].name;
	parts_.registry.add(peer, *geometry,
			    {std::move(taken[0]), std::move(taken[1]), std::move(taken[2]),
			     std::move(taken[3])},
			    std::move(options), key, done);
}

/* The arena named in the request, where it belongs to this connection; else answers and returns
 * null. */
std::shared_ptr<ArenaEntry> Control::own_arena(const Peer &peer, const json &in,
					       const Answer &answer)
{
	auto number = get_u32(in, "arena");
	auto entry = number ? parts_.arenas.find(*number) : nullptr;

	if (entry && entry->connection == peer.connection)
		return entry;
	answer.fail(ENOENT, "no such arena on this connection");
	return nullptr;
}

void Control::op_unregister(const Peer &peer, const json &in, Answer answer, Files &)
{
	if (auto entry = own_arena(peer, in, answer))
		parts_.registry.drop(entry, "unregistered", [answer] { answer.ok(); });
}

/* When it has ended, one way or another, the policy looks where the blocks are; then done is
 * called. */
void Control::submit(Request request, std::function<void(const Outcome &)> done)
{
	request.done = [this, done = std::move(done), arena = request.arena,
			extents = request.extents](const Outcome &o) {
		for (const Extent &extent : extents)
			parts_.policy.recheck(arena, extent);
		if (!o.error)
			parts_.bandwidths.add(Bandwidths::FromCold, o.restored_bytes,
					      o.restored_ns);
		done(o);
	};
	if (request.extents.empty())
		return request.done(Outcome{});
	parts_.faults.submit(std::move(request));
}

void Control::submit_ranges(Request::Kind kind, const Peer &peer, const json &in,
			    const Answer &answer)
{
	auto entry = own_arena(peer, in, answer);
	if (!entry)
		return;
	auto extents = get_ranges(in, *entry->arena);
	if (!extents)
		return answer.fail(
			EINVAL,
			fmt::format("ranges must be at most {} pairs [first, nr] inside the arena",
				    kMaxRanges));
	Request request{};
	request.kind = kind;
	request.arena = entry->arena;
	request.extents = std::move(*extents);
	request.deadline_ns = deadline_of(in);
	submit(std::move(request), [answer](const Outcome &o) { answer.outcome(o); });
}

void Control::op_make(const Peer &peer, const json &in, Answer answer, Files &)
{
	submit_ranges(Request::Kind::Make, peer, in, answer);
}

void Control::op_fetch(const Peer &peer, const json &in, Answer answer, Files &)
{
	submit_ranges(Request::Kind::Fetch, peer, in, answer);
}

void Control::op_drop(const Peer &peer, const json &in, Answer answer, Files &)
{
	submit_ranges(Request::Kind::Drop, peer, in, answer);
}

void Control::op_status(const Peer &, const json &, Answer answer, Files &)
{
	answer.ok(status_());
}

void Control::op_health(const Peer &, const json &, Answer answer, Files &)
{
	answer.ok(health_());
}

void Control::op_list(const Peer &, const json &, Answer answer, Files &)
{
	json arenas = json::array();

	for (const auto &entry : parts_.arenas.all()) {
		const Arena &arena = *entry->arena;
		const Geometry &g = arena.geometry;
		const auto phases = parts_.policy.phases(*entry);
		arenas.push_back(
			{{"arena", arena.options.number},
			 {"name", entry->name},
			 {"tenant", parts_.tenants[arena.tenant].name},
			 {"pid", arena.options.pid},
			 {"slots", g.nr_slots},
			 {"open_slots",
			  std::ranges::count_if(entry->open_slots,
						[](const auto &open) { return open.load(); })},
			 {"layers", g.nr_layers},
			 {"kv_heads", g.nr_kv_heads},
			 {"head_dim", g.head_dim},
			 {"elem_bytes", g.elem_bytes},
			 {"tokens_per_block", g.tokens_per_block},
			 {"tokens_per_slot", g.tokens_per_slot},
			 {"block_bytes", g.block_bytes},
			 {"bytes",
			  {{"hot", arena.bytes.hot.load()},
			   {"warm", arena.bytes.warm.load()},
			   {"cold", arena.bytes.cold.load()},
			   {"lost", arena.bytes.lost.load()}}},
			 {"phases",
			  {{"unknown", phases[0]}, {"prefill", phases[1]}, {"decode", phases[2]}}},
			 {"hints", arena.nr_hints.load()},
			 {"bad_hints", arena.nr_bad_hints.load()},
			 {"format", show_cold_format(arena)}});
	}
	answer.ok({{"arenas", arenas}});
}

void Control::op_heads(const Peer &, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "arena");
	auto entry = number ? parts_.arenas.find(*number) : nullptr;

	if (!entry)
		return answer.fail(ENOENT, "no such arena");
	json heads = json::array();
	auto errors = entry->arena->head_errors.all();
	errors.resize(entry->arena->geometry.nr_heads());
	for (const HeadStats &h : parts_.policy.heads(*number))
		heads.push_back({{"head", heads.size()},
				 {"error", show(errors[heads.size()])},
				 {"ema_sum", h.ema_sum},
				 {"hot", h.nr_hot},
				 {"warm", h.nr_warm},
				 {"cold", h.nr_cold},
				 {"hints", h.nr_hints},
				 {"reads", h.nr_reads},
				 {"writes", h.nr_writes}});
	answer.ok({{"layers", entry->arena->geometry.nr_layers},
		   {"kv_heads", entry->arena->geometry.nr_kv_heads},
		   {"heads", heads}});
}

} // namespace cxlkv
