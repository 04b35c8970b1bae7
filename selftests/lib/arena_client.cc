/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lib/arena_client.h"

#include "sys/uffd.h"
#include "sys/uffd_abi.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace cxlkv::test {

Geometry small_geometry(uint32_t nr_blocks, uint32_t nr_slots, uint32_t block_bytes)
{
	Geometry geometry{};
	geometry.nr_slots = nr_slots;
	geometry.nr_layers = 1;
	geometry.nr_kv_heads = 1;
	geometry.head_dim = 64;
	geometry.elem_bytes = 2;
	geometry.tokens_per_block = block_bytes / (2 * 64 * 2);
	geometry.tokens_per_slot = nr_blocks * geometry.tokens_per_block;
	geometry.block_bytes = block_bytes;
	geometry.layer_window = {0};
	return geometry;
}

Result<Fd> sealed_memfd(const char *name, uint64_t bytes, int seals)
{
	Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)))
		return sys_error("memfd");
	if (fcntl(fd.get(), F_ADD_SEALS, seals ? seals : F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return sys_error("seal");
	return fd;
}

static Result<Mapping> map(int fd, uint64_t bytes)
{
	void *addr = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED)
		return sys_error("map");
	return Mapping(addr, bytes);
}

Result<std::unique_ptr<ArenaClient>> ArenaClient::create(const Geometry &geometry)
{
	std::unique_ptr<ArenaClient> client(new ArenaClient(geometry));
	uint64_t table_bytes = uint64_t{geometry.nr_blocks()} * 8;
	uint64_t ring_bytes = CXL_KV_RING_ENTRIES_OFFSET + ring_entries * sizeof(cxl_kv_hint);
	auto memory = sealed_memfd("memory", geometry.bytes());
	auto table = sealed_memfd("table", table_bytes);
	auto ring = sealed_memfd("ring", ring_bytes);
	if (!memory || !table || !ring)
		return sys_error("files of an arena");
	auto memory_map = map(memory->get(), geometry.bytes());
	auto table_map = map(table->get(), table_bytes);
	auto ring_map = map(ring->get(), ring_bytes);
	if (!memory_map || !table_map || !ring_map)
		return sys_error("map an arena");
	for (int advice : {MADV_DONTFORK, MADV_DONTDUMP, MADV_NOHUGEPAGE})
		if (madvise(memory_map->data(), memory_map->size(), advice))
			return sys_error("madvise");

	auto fd = uffd::create_for_client();
	if (!fd)
		return fd.error();
	uint64_t modes =
		UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MINOR;
	auto addr = reinterpret_cast<uint64_t>(memory_map->data());
	if (int err = uffd::register_range(fd->get(), addr, geometry.bytes(), modes))
		return error(err, "register");

	client->files_ = {std::move(*memory), std::move(*fd), std::move(*table), std::move(*ring)};
	client->memory_ = std::move(*memory_map);
	client->table_ = std::move(*table_map);
	client->ring_ = std::move(*ring_map);
	client->ring()->nr_entries = ring_entries;
	return client;
}

ArenaFiles ArenaClient::files() const
{
	auto dup = [](const Fd &fd) { return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); };
	return {dup(files_.memory), dup(files_.uffd), dup(files_.table), dup(files_.ring)};
}

Result<std::shared_ptr<Arena>> ArenaClient::arena(uint32_t number, uint64_t key) const
{
	return Arena::create(geometry, files(),
			     {.number = number,
			      .key = key,
			      .pid = getpid(),
			      .client_base = reinterpret_cast<uint64_t>(base()),
			      .ring_entries = ring_entries,
			      .name = "test"});
}

Result<> ArenaClient::send(int socket) const
{
	int fds[] = {files_.memory.get(), files_.uffd.get(), files_.table.get(), files_.ring.get()};
	auto address = reinterpret_cast<uint64_t>(base());
	struct iovec iov = {&address, sizeof(address)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
	struct msghdr msg = {};

	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control;
	msg.msg_controllen = sizeof(control);
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	*cmsg = {.cmsg_len = CMSG_LEN(sizeof(fds)),
		 .cmsg_level = SOL_SOCKET,
		 .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	if (sendmsg(socket, &msg, MSG_NOSIGNAL) != sizeof(address))
		return sys_error("send files");
	return ok();
}

Result<std::pair<ArenaFiles, uint64_t>> ArenaClient::receive(int socket)
{
	int fds[4];
	uint64_t address;
	struct iovec iov = {&address, sizeof(address)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
	struct msghdr msg = {};

	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control;
	msg.msg_controllen = sizeof(control);
	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) != sizeof(address) || !CMSG_FIRSTHDR(&msg) ||
	    CMSG_FIRSTHDR(&msg)->cmsg_len != CMSG_LEN(sizeof(fds)))
		return sys_error("receive files");
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
	return std::pair{ArenaFiles{Fd(fds[0]), Fd(fds[1]), Fd(fds[2]), Fd(fds[3])}, address};
}

void ArenaClient::fill(uint32_t block, uint32_t round) const
{
	for (uint32_t i = 0; i < geometry.block_bytes / 8; i++)
		block64(block)[i].store(pattern(block, round, i), std::memory_order_relaxed);
}

uint32_t ArenaClient::nr_wrong(uint32_t block, uint32_t round) const
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < geometry.block_bytes / 8; i++)
		nr += block64(block)[i].load(std::memory_order_relaxed) != pattern(block, round, i);
	return nr;
}

uint64_t ArenaClient::resident_bytes() const
{
	struct stat st;

	return fstat(files_.memory.get(), &st) ? 0 : static_cast<uint64_t>(st.st_blocks) * 512;
}

int errno_of_system_call(const void *at)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return errno;
	Fd reader(ends[0]), writer(ends[1]);
	return write(writer.get(), at, 8) == 8 ? 0 : errno;
}

} // namespace cxlkv::test
