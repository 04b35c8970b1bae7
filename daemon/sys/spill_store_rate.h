/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cap of the bytes written per second, for the device's endurance. */
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cxlkv {

/* Up to one second's worth may come at once. */
class WriteRate {
public:
	/* 0: no cap. */
	explicit WriteRate(uint64_t bytes_per_s)
	    : bytes_per_s_(bytes_per_s), left_(static_cast<double>(bytes_per_s))
	{
	}

	/* A request longer than a second's worth passes when a whole second's worth is left. */
	bool allows(uint64_t bytes)
	{
		if (!bytes_per_s_)
			return true;
		auto now = std::chrono::steady_clock::now();
		double full = static_cast<double>(bytes_per_s_);
		left_ = std::min(full,
				 left_ + full * std::chrono::duration<double>(now - last_).count());
		last_ = now;
		return left_ >= std::min(full, static_cast<double>(bytes));
	}
	void take(uint64_t bytes) { left_ -= static_cast<double>(bytes); }

private:
	uint64_t bytes_per_s_;
	double left_;
	std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace cxlkv
