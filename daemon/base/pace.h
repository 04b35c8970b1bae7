/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bytes a second: what has moved is paid for by time, and the next bytes wait
 * until it is. Who is busy all the time moves no more than a 1/20 above the rate
 * in any second, and loses nothing by waking up to slack_ns late. A rate at which
 * one page takes many turns moves that page as soon as it is paid for. Pure.
 */
#pragma once

#include <algorithm>
#include <cstdint>

namespace cxlkv {

class Pace {
public:
	static constexpr uint64_t slack_ns = 25'000'000;

	/* How long to wait at that time before more may move; 0 = none. */
	uint64_t wait_ns(uint64_t now_ns)
	{
		paid_until_ns_ =
			std::max(paid_until_ns_, now_ns > slack_ns ? now_ns - slack_ns : 0);
		return paid_until_ns_ > now_ns ? paid_until_ns_ - now_ns : 0;
	}
	/* After so many bytes moved. Rate above 0. */
	void charge(uint64_t bytes, uint64_t bytes_per_s)
	{
		paid_until_ns_ += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 /
							static_cast<double>(bytes_per_s));
	}
	/* The most that moves at once, so that any second keeps to the rate. */
	static uint64_t most_at_once(uint64_t bytes_per_s)
	{
		return bytes_per_s / (1'000'000'000 / slack_ns);
	}

private:
	uint64_t paid_until_ns_ = 0;
};

} // namespace cxlkv
