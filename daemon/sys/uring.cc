/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/uring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>

namespace cxlkv {

namespace {

Error ring_error(int ret, const char *what)
{
	return {-ret, fmt::format("{}: {}", what, strerror(-ret))};
}

} // namespace

Result<std::unique_ptr<BlockIo>> UringIo::create(uint32_t depth, std::span<const int> files,
						 std::span<const iovec> buffers)
{
	std::unique_ptr<UringIo> io(new UringIo(depth));
	auto up = io->set_up(files, buffers);
	if (!up)
		return up.error();
	return std::unique_ptr<BlockIo>(std::move(io));
}

Result<> UringIo::set_up(std::span<const int> files, std::span<const iovec> buffers)
{
	/* Completions wait for reap() rather than interrupt the checksum of the one before. */
	int ret = io_uring_queue_init(depth_, &ring_,
				      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
	if (ret == -EINVAL) /* kernels before 5.19 */
		ret = io_uring_queue_init(depth_, &ring_, 0);
	if (ret < 0)
		return ring_error(ret, "io_uring (is kernel.io_uring_disabled set?)");
	have_ring_ = true;
	ret = io_uring_register_buffers(&ring_, buffers.data(),
					static_cast<unsigned>(buffers.size()));
	if (ret < 0)
		return ring_error(ret, "register buffers (RLIMIT_MEMLOCK must hold them all)");
	ret = io_uring_register_files(&ring_, files.data(), static_cast<unsigned>(files.size()));
	if (ret < 0)
		return ring_error(ret, "register files");
	event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!event_)
		return sys_error("eventfd");
	ret = io_uring_register_eventfd(&ring_, event_.get());
	if (ret < 0)
		return ring_error(ret, "register eventfd");
	return ok();
}

UringIo::~UringIo()
{
	if (have_ring_)
		io_uring_queue_exit(&ring_);
}

namespace {

void prepare(io_uring_sqe *sqe, const IoRequest &r)
{
	int file = static_cast<int>(r.file), buffer = static_cast<int>(r.buffer);

	switch (r.op) {
	case IoRequest::Op::Read:
		io_uring_prep_read_fixed(sqe, file, r.data, r.bytes, r.offset, buffer);
		break;
	case IoRequest::Op::Write:
		io_uring_prep_write_fixed(sqe, file, r.data, r.bytes, r.offset, buffer);
		break;
	case IoRequest::Op::Flush:
		io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
		break;
	case IoRequest::Op::Discard:
		io_uring_prep_fallocate(sqe, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					static_cast<off_t>(r.offset), r.bytes);
		break;
	}
}

} // namespace

bool UringIo::submit(const IoRequest &request)
{
	if (nr_in_flight_ == depth_)
		return false;
	io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
	if (!sqe)
		return false;
	prepare(sqe, request);
	sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, request.token);
	nr_in_flight_++;

	push();
	return true;
}

/*
 * Hands queued entries to the kernel. Where it does not take them (EAGAIN, EBUSY,
 * EINTR) they stay queued, and the eventfd is raised so that reap() tries again.
 */
void UringIo::push()
{
	if (io_uring_submit(&ring_) < 0)
		eventfd_write(event_.get(), 1);
}

void UringIo::reap(std::vector<IoDone> &done)
{
	eventfd_t count;
	io_uring_cqe *cqe;

	/* Clear first: a completion after this makes the eventfd readable again. */
	eventfd_read(event_.get(), &count);
	if (io_uring_sq_ready(&ring_))
		push();
	while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
		done.push_back({io_uring_cqe_get_data64(cqe), cqe->res});
		io_uring_cqe_seen(&ring_, cqe);
		nr_in_flight_--;
	}
}

} // namespace cxlkv
