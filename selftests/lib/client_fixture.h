/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What tests of libcxl_kv start from: a socket, a connection to open, the messages it logged. */
#pragma once

#include "lib/eventually.h"
#include "lib/fake_manager.h"

#include <chrono>
#include <cxl_kv.h>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <thread>

namespace cxlkv {

class ClientFixture : public testing::Test {
protected:
	~ClientFixture() override { cxl_kv_close(kv_); }

	[[nodiscard]] cxl_kv_options options()
	{
		cxl_kv_options result{};

		result.size = sizeof(result);
		result.loss_deadline_ms = 10000;
		result.socket_path = socket_.path().c_str();
		result.log = log;
		result.log_data = this;
		return result;
	}

	int open() { return open(options()); }
	int open(const cxl_kv_options &with) { return cxl_kv_open(&with, &kv_); }

	std::string messages()
	{
		std::lock_guard guard(log_lock_);
		return messages_;
	}

	static bool eventually(const std::function<bool()> &condition)
	{
		return test::eventually(condition);
	}

	TemporarySocket socket_;
	cxl_kv *kv_ = nullptr;

private:
	static void log(void *data, const char *message)
	{
		auto *self = static_cast<ClientFixture *>(data);
		std::lock_guard guard(self->log_lock_);

		self->messages_ += std::string(message) + "\n";
	}

	std::mutex log_lock_;
	std::string messages_;
};

} // namespace cxlkv
