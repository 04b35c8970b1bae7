/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * On which node each page of this process lies, from /proc/self/pagemap: one
 * read for all of an arena, which asks for nothing to be moved or mapped and
 * leaves accessed bits alone. Needs CAP_SYS_ADMIN, for the frame numbers.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cxlkv::peers {

enum class Place : uint8_t { Nowhere, Hot, Warm };

class Places {
public:
	/* Pages of the hot node are Hot, those of any other are Warm. */
	static Result<Places> create(int hot_node);

	/* Of nr pages from base on. */
	Result<> look(const std::byte *base, size_t nr, std::vector<Place> &places);

private:
	Places() = default;

	Fd pagemap_;
	uint64_t frames_per_section_ = 0;
	std::vector<bool> is_hot_; /* by section of memory */
	std::vector<uint64_t> entries_;
};

} // namespace cxlkv::peers
