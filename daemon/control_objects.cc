/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The requests about keyed objects: rings, buffers and namespaces go to the object thread. */
#include "base/log.h"
#include "control.h"
#include "control_line.h"
#include "status.h"

#include <fmt/format.h>

namespace cxlkv {

using nlohmann::json;

namespace {

constexpr size_t kMaxGroups = 256;
constexpr size_t kMaxText = 256;
constexpr uint32_t kMaxObjectBytes = 256u << 20;
constexpr size_t kSaltDigits = 64;

/* The files in front, at most nr. */
std::deque<Fd> take_files(std::deque<Fd> &files, size_t nr)
{
	std::deque<Fd> taken;

	for (; nr && !files.empty(); nr--) {
		taken.push_back(std::move(files.front()));
		files.pop_front();
	}
	return taken;
}

bool get_groups(const json &in, SpaceSpec *spec)
{
	auto groups = in.find("groups");

	if (groups == in.end() || !groups->is_array() || groups->empty() ||
	    groups->size() > kMaxGroups)
		return false;
	for (const json &group : *groups) {
		if (!group.is_array() || group.size() != 2 || !group[0].is_number_unsigned() ||
		    !group[1].is_number_unsigned() || group[0].get<uint64_t>() > UINT32_MAX ||
		    !group[1].get<uint64_t>() || group[1].get<uint64_t>() > kMaxObjectBytes)
			return false;
		if (!spec->groups.emplace(group[0].get<uint32_t>(), group[1].get<uint32_t>())
			     .second)
			return false;
	}
	return true;
}

/* "" or what is wrong. */
std::string get_spec(const json &in, SpaceSpec *spec)
{
	auto identity = in.find("identity");

	spec->name = get_text(in, "name");
	spec->salt = get_text(in, "salt");
	if (spec->name.empty() || spec->name.size() > kMaxText)
		return fmt::format("a namespace needs a name of at most {} bytes", kMaxText);
	if (spec->salt.size() != kSaltDigits ||
	    spec->salt.find_first_not_of("0123456789abcdef") != std::string::npos)
		return fmt::format("salt must be {} hexadecimal digits", kSaltDigits);
	if (identity == in.end() || !identity->is_object())
		return "a namespace needs an identity";
	for (const char *field : SpaceSpec::identity_fields) {
		auto it = identity->find(field);
		if (it == identity->end() || !it->is_string() ||
		    it->get_ref<const std::string &>().size() > kMaxText)
			return fmt::format("identity needs {} as a text of at most {} bytes", field,
					   kMaxText);
		spec->identity.push_back(it->get<std::string>());
	}
	if (!get_groups(in, spec))
		return fmt::format("groups must be 1 to {} pairs [group, bytes of an object], up "
				   "to {} MiB, no group twice",
				   kMaxGroups, kMaxObjectBytes >> 20);
	return "";
}

} // namespace

void Control::start_object_pool()
{
	if (std::exchange(object_pool_started_, true))
		return;
	ObjectPool *pool = parts_.objects.make_pool();
	if (!pool)
		return parts_.objects.attached(nullptr);
	auto files = pool->files();
	if (!files) {
		log_error("{}", files.error().what);
		return parts_.objects.attached(nullptr);
	}
	parts_.registry.add_own(pool->geometry(), std::move(*files), pool->options(),
				[this](const Result<std::shared_ptr<ArenaEntry>> &served) {
					if (!served)
						log_error("object pool: {}", served.error().what);
					parts_.objects.attached(served ? (*served)->arena
								       : nullptr);
				});
}

void Control::op_rings(const Peer &peer, const json &, Answer answer, Files &files)
{
	auto taken = std::make_shared<Files>(take_files(files, CXL_KV_NR_LANE_FILES));
	const uint32_t tenant = clients_[peer.connection].tenant;

	parts_.objects.post([this, peer, answer, tenant, taken] {
		parts_.objects.add_lanes(peer.connection, peer.pid, tenant, std::move(*taken),
					 answered(answer));
	});
}

void Control::op_buffer(const Peer &peer, const json &in, Answer answer, Files &files)
{
	auto number = get_u32(in, "buffer");
	auto bytes = get_u64_text(in, "bytes");
	auto taken = std::make_shared<Files>(take_files(files, 1));

	if (!number || !bytes || taken->empty())
		return answer.fail(EINVAL, "buffer needs its number, bytes as a decimal string "
					   "and a file");
	parts_.objects.post([this, peer, answer, taken, number = *number, bytes = *bytes] {
		parts_.objects.add_buffer(peer.connection, number, std::move(taken->front()), bytes,
					  answered(answer));
	});
}

void Control::op_buffer_remove(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "buffer");

	if (!number)
		return answer.fail(EINVAL, "buffer_remove needs the buffer's number");
	parts_.objects.post([this, peer, answer, number = *number] {
		parts_.objects.remove_buffer(peer.connection, number, answered(answer));
	});
}

void Control::op_namespace(const Peer &peer, const json &in, Answer answer, Files &)
{
	SpaceSpec spec;
	auto replace = in.find("replace");
	bool replaces = replace != in.end() && replace->is_boolean() && replace->get<bool>();

	if (std::string wrong = get_spec(in, &spec); !wrong.empty())
		return answer.fail(EINVAL, wrong);
	start_object_pool();
	parts_.objects.post([this, peer, answer, spec = std::move(spec), replaces] {
		parts_.objects.open_space(
			peer.connection, spec, replaces,
			[answer](const Result<ObjectThread::Opened> &opened) {
				if (opened)
					return answer.ok({{"namespace", (*opened).number},
							  {"index_bytes",
							   std::to_string((*opened).index_bytes)}},
							 (*opened).index_fd);
				const Error &error = opened.error();
				if (error.code != ESTALE)
					return answer.fail(error.code, error.what);
				answer.fail(ESTALE,
					    fmt::format("the namespace has another identity: {} "
							"differs",
							error.what),
					    {{"field", error.what}});
			});
	});
}

void Control::op_namespace_stats(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");

	if (!number)
		return answer.fail(EINVAL, "namespace_stats needs the namespace's number");
	parts_.objects.post([this, peer, answer, number = *number] {
		auto space = parts_.objects.space_stats(peer.connection, number);
		if (!space)
			return answer.fail(ENOENT, "no such namespace on this connection");
		json fields = stats_json(parts_.objects.stats(), parts_.objects.chunk_bytes());
		fields["objects"] = space->nr_objects;
		fields["pending"] = space->nr_pending;
		fields["tenant_bytes"] = space->tenant.bytes;
		fields["quota_bytes"] = space->tenant.quota_bytes;
		answer.ok(fields);
	});
}

void Control::op_namespace_close(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");

	if (!number)
		return answer.fail(EINVAL, "namespace_close needs the namespace's number");
	parts_.objects.post([this, peer, answer, number = *number] {
		parts_.objects.close_space(peer.connection, number);
		answer.ok();
	});
}

} // namespace cxlkv
