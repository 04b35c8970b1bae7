/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting for a condition. */
#pragma once

#include <chrono>
#include <functional>

namespace cxlkv::test {

/* True as soon as the condition holds; false after the deadline. */
bool eventually(const std::function<bool()> &condition,
		std::chrono::milliseconds deadline = std::chrono::seconds(60));

} // namespace cxlkv::test
