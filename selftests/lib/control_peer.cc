// SPDX-License-Identifier: LGPL-2.1-or-later
#include "lib/control_peer.h"

#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace cxlkv::test {

using nlohmann::json;

ControlPeer::ControlPeer(const std::string &path)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))
{
	sockaddr_un address{};

	address.sun_family = AF_UNIX;
	path.copy(address.sun_path, sizeof(address.sun_path) - 1);
	if (connect(fd_.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)))
		throw std::runtime_error(path + ": " + strerror(errno));
}

bool ControlPeer::send(const std::string &text, const std::vector<int> &files)
{
	pollfd out{fd_.get(), POLLOUT, 0};
	iovec iov{const_cast<char *>(text.data()), text.size()};
	alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
	msghdr message{};

	message.msg_iov = &iov;
	message.msg_iovlen = 1;
	if (!files.empty()) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
		cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
		memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
	}
	return poll(&out, 1, timeout_ms) == 1 &&
	       sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
		       static_cast<ssize_t>(text.size());
}

json ControlPeer::answer(int wait_ms)
{
	std::string line;
	pollfd in{fd_.get(), POLLIN, 0};

	for (char c; poll(&in, 1, wait_ms) == 1 && recv(fd_.get(), &c, 1, 0) == 1;) {
		if (c == '\n')
			return json::parse(line, nullptr, false);
		line += c;
	}
	return nullptr;
}

json ControlPeer::ask(const std::string &line, const std::vector<int> &files)
{
	return send(line + "\n", files) ? answer() : json();
}

bool ControlPeer::skip_answers()
{
	char buffer[65536];
	ssize_t nr;

	do
		nr = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
	while (nr > 0);
	return nr < 0 && errno == EAGAIN;
}

PeerRings::PeerRings()
    : memory(memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
{
	for (Fd &event : events)
		event = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (ftruncate(memory.get(), CXL_KV_LANES_BYTES) ||
	    fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK))
		throw std::runtime_error("cannot make rings");
	lanes = static_cast<cxl_kv_lane *>(mmap(nullptr, CXL_KV_LANES_BYTES, PROT_READ | PROT_WRITE,
						MAP_SHARED, memory.get(), 0));
	if (lanes == MAP_FAILED)
		throw std::runtime_error("cannot map rings");
}

PeerRings::~PeerRings()
{
	munmap(lanes, CXL_KV_LANES_BYTES);
}

std::vector<int> PeerRings::files() const
{
	std::vector<int> files{memory.get(), doorbell.get()};

	for (const Fd &event : events)
		files.push_back(event.get());
	return files;
}

void PeerRings::put(cxl_kv_lane_class which, const std::vector<cxl_kv_item> &items)
{
	cxl_kv_lane &lane = lanes[which];
	uint32_t head = lane.item_head;

	for (const cxl_kv_item &item : items)
		lane.items[head++ % CXL_KV_LANE_ENTRIES] = item;
	__atomic_store_n(&lane.item_head, head, __ATOMIC_RELEASE);
	eventfd_write(doorbell.get(), 1);
}

uint32_t PeerRings::nr_results(cxl_kv_lane_class lane) const
{
	return __atomic_load_n(&lanes[lane].result_head, __ATOMIC_ACQUIRE);
}

} // namespace cxlkv::test
