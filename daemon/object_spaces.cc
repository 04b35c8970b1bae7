/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Namespaces of the object thread: opened by name and salt, refused where the identity differs. */
#include "object_thread.h"

#include "registry.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cxlkv {

namespace {

constexpr size_t kMaxSpaces = 256;

} // namespace

bool ObjectThread::in_use(uint32_t space) const
{
	return std::ranges::any_of(
		clients_, [&](const auto &entry) { return entry.second.spaces.contains(space); });
}

/* Objects that somebody needs stay. Returns how many went. */
uint32_t ObjectThread::empty_space(uint32_t space)
{
	uint32_t nr = 0;

	for (Object *object : table_.all()) {
		if (object->space != space || object->state != Object::State::Ready ||
		    object->held(monotonic_ns()))
			continue;
		remove(*object, ENOENT);
		nr++;
	}
	return nr;
}

/* Nobody has it open, nothing is in it, and no quota would be forgotten with it. */
bool ObjectThread::forget_unused_space()
{
	std::set<uint32_t> has_objects;

	for (const Object *object : table_.all())
		has_objects.insert(object->space);
	auto it = std::ranges::find_if(spaces_, [&](const auto &entry) {
		return !in_use(entry.first) && !has_objects.contains(entry.first) &&
		       !table_.usage(entry.second.tenant).quota_bytes;
	});
	if (it == spaces_.end())
		return false;
	spaces_.erase(it);
	return true;
}

Result<uint32_t> ObjectThread::find_or_make_space(const SpaceSpec &spec, bool replace)
{
	auto it = std::ranges::find_if(
		spaces_, [&](const auto &entry) { return entry.second.spec.same_place(spec); });

	if (it != spaces_.end()) {
		std::string field = it->second.spec.difference(spec);
		if (field.empty())
			return it->first;
		if (!replace)
			return error(ESTALE, field);
		if (in_use(it->first))
			return error(EBUSY, "the namespace is open with another identity");
		/* Pins and priorities were of the old contents. */
		for (Object *object : table_.all())
			if (object->space == it->first && object->state != Object::State::Gone)
				remove(*object, ENOENT);
		spaces_.erase(it);
	}
	if (spaces_.size() >= kMaxSpaces && !forget_unused_space())
		return error(ENOSPC,
			     fmt::format("{} namespaces are open, or have objects", kMaxSpaces));
	uint64_t nr_slots = ObjectIndex::slots_for(options_.nr_chunks);
	auto file = IndexFile::create(cxl_kv_index_bytes(nr_slots));
	if (!file)
		return file.error();
	uint64_t &tenant = tenants_[spec.salt];
	if (!tenant)
		tenant = next_tenant_++;
	auto index = std::make_unique<ObjectIndex>(file->data(), nr_slots);
	spaces_.emplace(next_space_, Space{spec, tenant, std::move(*file), std::move(index)});
	return next_space_++;
}

void ObjectThread::open_space(uint64_t connection, SpaceSpec spec, bool replace, OpenDone done)
{
	if (attach_failed_)
		return done(error(EOPNOTSUPP, "the daemon could not make its object pool; its log "
					      "says why"));
	if (!arena_) {
		clients_[connection];
		opens_.push_back([this, connection, spec = std::move(spec), replace,
				  done = std::move(done)] {
			if (clients_.contains(connection)) /* else it hung up */
				open_space(connection, spec, replace, done);
		});
		return;
	}
	auto number = find_or_make_space(spec, replace);
	if (!number)
		return done(number.error());
	const Space &space = spaces_.at(*number);
	clients_[connection].spaces.insert(*number);
	done(Opened{*number, cxl_kv_index_bytes(ObjectIndex::slots_for(options_.nr_chunks)),
		    space.file.fd()});
}

std::optional<ObjectThread::SpaceStats> ObjectThread::space_stats(uint64_t connection,
								  uint32_t number)
{
	auto client = clients_.find(connection);
	SpaceStats stats;

	if (client == clients_.end() || !client->second.spaces.contains(number))
		return {};
	for (const Object *object : table_.all()) {
		if (object->space != number)
			continue;
		stats.nr_objects += object->state == Object::State::Ready;
		stats.nr_pending += object->pending();
	}
	stats.tenant = table_.usage(spaces_.at(number).tenant);
	return stats;
}

void ObjectThread::close_space(uint64_t connection, uint32_t number)
{
	auto &spaces = clients_[connection].spaces;

	if (auto it = spaces.find(number); it != spaces.end())
		spaces.erase(it);
	if (!spaces.contains(number))
		clients_[connection].tiers.erase(number);
}

} // namespace cxlkv
