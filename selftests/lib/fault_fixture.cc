/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lib/fault_fixture.h"

#include "base/log.h"
#include "sys/ledger.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <sys/eventfd.h>

namespace cxlkv::test {

bool SteeredIo::holds(const IoRequest &request) const
{
	return (request.op == IoRequest::Op::Write && hold_writes_) ||
	       (request.op == IoRequest::Op::Read && hold_reads_);
}

bool SteeredIo::submit(const IoRequest &request)
{
	std::lock_guard lock(mutex_);
	if (holds(request)) {
		held_.push_back(request);
		return true;
	}
	auto result = fault_ ? fault_(request) : std::nullopt;
	if (!result)
		return below_->submit(request);
	faked_.push_back({request.token, *result});
	eventfd_write(event_fd(), 1);
	return true;
}

void SteeredIo::reap(std::vector<IoDone> &done)
{
	std::lock_guard lock(mutex_);
	while (!held_.empty() && !holds(held_.front())) {
		if (!below_->submit(held_.front()))
			break;
		held_.erase(held_.begin());
	}
	done.insert(done.end(), faked_.begin(), faked_.end());
	faked_.clear();
	below_->reap(done);
}

void SteeredIo::hold(bool writes, bool reads)
{
	std::lock_guard lock(mutex_);
	hold_writes_ = writes;
	hold_reads_ = reads;
}

void SteeredIo::release()
{
	hold(false, false);
	eventfd_write(event_fd(), 1);
}

void SteeredIo::fail(Fault fault)
{
	std::lock_guard lock(mutex_);
	fault_ = std::move(fault);
}

size_t SteeredIo::nr_held(IoRequest::Op op) const
{
	std::lock_guard lock(mutex_);
	return static_cast<size_t>(std::count_if(
		held_.begin(), held_.end(), [op](const IoRequest &io) { return io.op == op; }));
}

std::string new_spill_file()
{
	const char *base = getenv("TMPDIR");
	std::string name = std::string(base ? base : "/var/tmp") + "/cxl-kv-spill-XXXXXX";

	Fd made(mkstemp(name.data()));
	return name;
}

Result<std::unique_ptr<TestServer>> TestServer::start(const Options &options)
{
	std::unique_ptr<TestServer> test(new TestServer);

	test->path_ = options.path;
	test->own_path_ = options.path.empty();
	if (test->own_path_)
		test->path_ = new_spill_file();
	StoreOptions store_options;
	store_options.path = test->path_;
	store_options.size_bytes = options.store_bytes;
	auto store = SpillStore::open(store_options, [&test](std::unique_ptr<BlockIo> below) {
		auto io = std::make_unique<SteeredIo>(std::move(below));
		test->io_ = io.get();
		return io;
	});
	if (!store)
		return store.error();
	auto server = FaultServer::create(options.server, std::move(*store));
	if (!server)
		return server.error();
	test->server_ = std::move(*server);
	test->server_->on_want_room(options.want_room);
	test->thread_ = std::thread([raw = test->server_.get()] {
		if (auto ran = raw->run(); !ran)
			log_error("fault server: {}", ran.error().what);
	});
	return test;
}

TestServer::~TestServer()
{
	if (thread_.joinable()) {
		server_->stop();
		thread_.join();
	}
	if (own_path_)
		unlink(path_.c_str());
}

void TestServer::post(Request::Kind kind, const std::shared_ptr<Arena> &arena,
		      std::vector<Extent> extents, uint64_t timeout_ms,
		      std::function<void(const Outcome &)> done)
{
	Request request;
	request.kind = kind;
	request.arena = arena;
	request.extents = std::move(extents);
	request.deadline_ns = timeout_ms ? now_ns() + timeout_ms * 1'000'000 : 0;
	request.done = std::move(done);
	server_->submit(std::move(request));
}

Outcome TestServer::call(Request::Kind kind, const std::shared_ptr<Arena> &arena,
			 std::vector<Extent> extents, uint64_t timeout_ms, bool keep)
{
	auto answer = std::make_shared<std::promise<Outcome>>();
	auto future = answer->get_future();
	Request request;
	request.kind = kind;
	request.arena = arena;
	request.extents = std::move(extents);
	request.deadline_ns = timeout_ms ? now_ns() + timeout_ms * 1'000'000 : 0;
	request.keep = keep;
	request.done = [answer](const Outcome &outcome) { answer->set_value(outcome); };
	server_->submit(std::move(request));
	if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready)
		return {ETIMEDOUT, 0, 0};
	return future.get();
}

} // namespace cxlkv::test
