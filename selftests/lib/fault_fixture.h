/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fault server on its own thread, with a spill file of its own whose I/O a
 * test can hold back or fail, and requests that wait for their answer.
 */
#pragma once

#include "lib/arena_client.h"
#include "lib/eventually.h"
#include "sys/fault_server.h"
#include "sys/uring.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace cxlkv::test {

/* Between the store and its device; steered by the test while the I/O thread uses it. */
class SteeredIo final : public BlockIo {
public:
	/* Of an I/O of the kind (write or read): nullopt lets it pass, a value is its result. */
	using Fault = std::function<std::optional<int>(const IoRequest &)>;

	explicit SteeredIo(std::unique_ptr<BlockIo> below) : below_(std::move(below)) {}
	bool submit(const IoRequest &request) override;
	void reap(std::vector<IoDone> &done) override;
	[[nodiscard]] int event_fd() const override { return below_->event_fd(); }

	void hold(bool writes, bool reads);
	void release();
	void fail(Fault fault);
	[[nodiscard]] size_t nr_held(IoRequest::Op op) const;

private:
	[[nodiscard]] bool holds(const IoRequest &request) const;

	std::unique_ptr<BlockIo> below_;
	mutable std::mutex mutex_;
	bool hold_writes_ = false, hold_reads_ = false;
	Fault fault_;
	std::vector<IoRequest> held_;
	std::vector<IoDone> faked_;
};

class TestServer {
public:
	struct Options {
		uint64_t store_bytes = 64 << 20;
		FaultServerOptions server = {};
		std::string path = {}; /* empty: a new spill file, removed at the end */
		std::function<void()> want_room = {};
	};

	static Result<std::unique_ptr<TestServer>> start(const Options &options);
	~TestServer();

	Outcome call(Request::Kind kind, const std::shared_ptr<Arena> &arena,
		     std::vector<Extent> extents = {}, uint64_t timeout_ms = 0, bool keep = false);
	/* Does not wait; done is called on the I/O thread. */
	void post(Request::Kind kind, const std::shared_ptr<Arena> &arena,
		  std::vector<Extent> extents, uint64_t timeout_ms,
		  std::function<void(const Outcome &)> done);
	[[nodiscard]] FaultStats stats() const { return server_->stats(); }
	[[nodiscard]] FaultServer &server() { return *server_; }
	[[nodiscard]] SteeredIo &io() { return *io_; }
	[[nodiscard]] const std::string &path() const { return path_; }

private:
	TestServer() = default;

	std::string path_;
	bool own_path_ = false;
	SteeredIo *io_ = nullptr;
	std::unique_ptr<FaultServer> server_;
	std::thread thread_;
};

/* Path of a new, empty spill file on a file system that knows O_DIRECT. */
std::string new_spill_file();

} // namespace cxlkv::test
