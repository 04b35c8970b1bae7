/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client of libcxl_kv with a daemon of the test's own, and an arena in it. */
#pragma once

#include "lib/client_fixture.h"
#include "lib/daemon_process.h"

#include <iostream>
#include <unistd.h>
#include <utility>

namespace cxlkv {

inline constexpr uint32_t timeout_ms = 20000;

/* 16 MiB in 256 blocks; a slot is 4 MiB, a head of it half a MiB. */
inline constexpr cxl_kv_geometry wide_geometry{
	.nr_slots = 4,
	.nr_layers = 4,
	.nr_kv_heads = 2,
	.head_dim = 64,
	.elem_bytes = 4,
	.tokens_per_block = 128,
	.tokens_per_slot = 1024,
	.block_bytes = 64 << 10,
};

class DaemonFixture : public ClientFixture {
protected:
	/* Control clients of this process find the daemon, too. Skips the test without root. */
	void start(const cxl_kv_geometry &geometry, const std::vector<std::string> &settings,
		   uint32_t loss_deadline_ms = 10000)
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
		daemon_ = std::make_unique<DaemonProcess>(settings);
		daemon_->start();
		setenv("CXL_KV_SOCKET", daemon_->socket().c_str(), 1);
		cxl_kv_options with = options();
		with.socket_path = daemon_->socket().c_str();
		with.loss_deadline_ms = loss_deadline_ms;
		ASSERT_EQ(open(with), 0) << messages() << daemon_->log();
		ASSERT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), 0)
			<< messages() << daemon_->log();
	}

	/* Before the daemon's end, which would be a loss to get over. */
	void TearDown() override
	{
		cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
		cxl_kv_close(std::exchange(kv_, nullptr));
		if (HasFailure() && daemon_)
			std::cout << "# " << messages() << daemon_->log();
	}

	std::unique_ptr<DaemonProcess> daemon_;
	cxl_kv_arena *arena_ = nullptr;
};

} // namespace cxlkv
