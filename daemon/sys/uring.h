/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Asynchronous reads and writes between registered buffers and registered
 * files. BlockIo is the seam where tests put their faults; UringIo is the real
 * one. An eventfd becomes readable when completions wait.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <liburing.h>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

namespace cxlkv {

struct IoRequest {
	enum class Op : uint8_t { Read, Write, Flush, Discard };
	Op op = Op::Read;
	uint32_t file = 0;   /* index of a registered file */
	uint32_t buffer = 0; /* index of the registered buffer that data lies in */
	std::byte *data = nullptr;
	uint32_t bytes = 0;
	uint64_t offset = 0;
	uint64_t token = 0; /* comes back with the completion */

	[[nodiscard]] bool is_write() const { return op == Op::Write; }
};

struct IoDone {
	uint64_t token = 0;
	int result = 0; /* bytes (0 after Flush and Discard), or a negative errno */
};

class BlockIo {
public:
	virtual ~BlockIo() = default;
	/* False: depth I/Os are in flight already, reap first. */
	virtual bool submit(const IoRequest &request) = 0;
	/* Appends what has completed; never blocks. */
	virtual void reap(std::vector<IoDone> &done) = 0;
	[[nodiscard]] virtual int event_fd() const = 0;
};

class UringIo final : public BlockIo {
public:
	/* A file of -1 keeps its index; I/O on it fails with EBADF. */
	static Result<std::unique_ptr<BlockIo>> create(uint32_t depth, std::span<const int> files,
						       std::span<const iovec> buffers);
	~UringIo() override;
	UringIo(const UringIo &) = delete;
	UringIo &operator=(const UringIo &) = delete;

	bool submit(const IoRequest &request) override;
	void reap(std::vector<IoDone> &done) override;
	[[nodiscard]] int event_fd() const override { return event_.get(); }

private:
	explicit UringIo(uint32_t depth) : depth_(depth) {}
	Result<> set_up(std::span<const int> files, std::span<const iovec> buffers);

	void push();

	io_uring ring_{};
	bool have_ring_ = false;
	Fd event_;
	uint32_t depth_;
	uint32_t nr_in_flight_ = 0;
};

} // namespace cxlkv
