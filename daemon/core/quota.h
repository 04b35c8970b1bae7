/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a tenant may have of each tier, and who may say that he is that tenant. Pure. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv {

constexpr uint64_t no_quota = UINT64_MAX;

struct Quota {
	uint64_t hot = no_quota, warm = no_quota, cold = no_quota; /* bytes */

	bool operator==(const Quota &) const = default;

	/* Of memory altogether; a warm quota counts only where there is such a tier. */
	[[nodiscard]] uint64_t memory(bool has_warm) const
	{
		const uint64_t more = has_warm ? warm : 0;
		return hot > no_quota - more ? no_quota : hot + more;
	}
};

struct Tenant {
	std::string name;
	Quota quota;
	std::vector<uint32_t> uids; /* of its processes; empty: whoever says so */

	bool operator==(const Tenant &) const = default;
};

/* The first one is "default": clients that are no other tenant's. */
class Tenants {
public:
	explicit Tenants(std::vector<Tenant> table) : table_(std::move(table))
	{
		auto is_default = [](const Tenant &tenant) { return tenant.name == "default"; };
		auto at = std::ranges::find_if(table_, is_default);
		if (at == table_.end())
			table_.insert(table_.begin(), Tenant{"default", {}, {}});
		else
			std::rotate(table_.begin(), at, at + 1);
	}

	/*
	 * The tenant of a process with this uid that calls itself so; "": by its uid
	 * alone. -1 where there is no such tenant, or it is not the uid's to be.
	 */
	[[nodiscard]] int identify(uint32_t uid, const std::string &declared) const
	{
		for (size_t i = 0; i < table_.size(); i++) {
			const Tenant &tenant = table_[i];
			const bool listed =
				std::ranges::find(tenant.uids, uid) != tenant.uids.end();
			if (declared.empty()
				    ? listed
				    : declared == tenant.name && (listed || tenant.uids.empty()))
				return static_cast<int>(i);
		}
		return declared.empty() ? 0 : -1;
	}

	[[nodiscard]] const std::vector<Tenant> &table() const { return table_; }
	[[nodiscard]] const Tenant &operator[](uint32_t i) const { return table_[i]; }

private:
	std::vector<Tenant> table_;
};

} // namespace cxlkv
