// SPDX-License-Identifier: LGPL-2.1-or-later
#include "lib/fake_manager.h"

#include <linux/cxl_kv.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace cxlkv {

namespace {

union Control {
	cmsghdr align;
	char bytes[CMSG_SPACE(8 * sizeof(int))];
};

Fd listen_at(const std::string &path)
{
	sockaddr_un address{};
	Fd fd{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

	address.sun_family = AF_UNIX;
	strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
	unlink(path.c_str());
	if (bind(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)) ||
	    listen(fd.get(), 8))
		throw std::runtime_error("cannot listen at " + path);
	return fd;
}

void send_reply(int socket, const FakeManager::Reply &reply)
{
	iovec vector{const_cast<char *>(reply.text.data()), reply.text.size()};
	msghdr message{};
	Control control{};
	int fd = reply.file.get();

	message.msg_iov = &vector;
	message.msg_iovlen = 1;
	if (reply.file) {
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(fd));
	}
	/* A client that is gone is what some tests are about. */
	(void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

} // namespace

FakeManager::FakeManager(std::string path, Script script)
    : path_(std::move(path)), script_(std::move(script)), listener_(listen_at(path_)),
      stop_(eventfd(0, EFD_CLOEXEC)), thread_([this] { run(); })
{
}

FakeManager::~FakeManager()
{
	eventfd_write(stop_.get(), 1);
	thread_.join();
}

void FakeManager::say(const std::string &text)
{
	std::lock_guard guard(lock_);
	Reply reply{.text = text, .file = Fd{}};

	for (Client &client : clients_)
		send_reply(client.socket.get(), reply);
}

void FakeManager::run()
{
	for (;;) {
		std::vector<pollfd> polled{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};

		for (const Client &client : clients_)
			polled.push_back({client.socket.get(), POLLIN, 0});
		if (poll(polled.data(), polled.size(), -1) < 0)
			continue;
		if (polled[0].revents)
			return;
		/* From the back, so that what is left keeps its place. */
		for (size_t i = clients_.size(); i-- > 0;) {
			if (!polled[i + 2].revents || serve(clients_[i]))
				continue;
			std::lock_guard guard(lock_);
			clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(i));
		}
		if (polled[1].revents) {
			Client client;

			client.socket.reset(
				accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
			std::lock_guard guard(lock_);
			clients_.push_back(std::move(client));
		}
	}
}

/* Reads what is there and answers each whole line; false when the connection is over. */
bool FakeManager::serve(Client &client)
{
	static thread_local char bytes[65536];
	iovec vector{bytes, sizeof(bytes)};
	Control control{};
	msghdr message{};

	message.msg_iov = &vector;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	ssize_t nr = recvmsg(client.socket.get(), &message, MSG_CMSG_CLOEXEC);
	if (nr <= 0)
		return false;
	for (cmsghdr *header = CMSG_FIRSTHDR(&message); header;
	     header = CMSG_NXTHDR(&message, header)) {
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len;
		     at += sizeof(int)) {
			int fd;

			memcpy(&fd, reinterpret_cast<char *>(header) + at, sizeof(fd));
			client.files.emplace_back(fd);
		}
	}
	client.text.append(bytes, static_cast<size_t>(nr));
	for (size_t end; (end = client.text.find('\n')) != std::string::npos;) {
		Request request{nlohmann::json::parse(client.text.substr(0, end)),
				std::exchange(client.files, {})};

		client.text.erase(0, end + 1);
		Reply reply = script_(request);
		if (!reply.text.empty())
			send_reply(client.socket.get(), reply);
		if (reply.hang_up)
			return false;
	}
	return true;
}

FakeManager::Reply FakeManager::ok(const Request &request, nlohmann::json fields)
{
	fields["id"] = request.body["id"];
	fields["ok"] = true;
	return {.text = fields.dump() + "\n", .file = Fd{}};
}

FakeManager::Reply FakeManager::error(const Request &request, const std::string &name)
{
	const nlohmann::json answer{
		{"id", request.body["id"]}, {"error", name}, {"message", "as the test asked"}};

	return {.text = answer.dump() + "\n", .file = Fd{}};
}

FakeManager::Reply FakeManager::agree(const Request &request)
{
	if (request.body["op"] == "hello")
		return ok(
			request,
			{{"version", CXL_KV_ABI_VERSION}, {"daemon", "fake"}, {"mode", "native"}});
	if (request.body["op"] == "register")
		return ok(request, {{"arena", 1}, {"key", request.body.value("key", "77")}});
	return ok(request);
}

TemporarySocket::TemporarySocket() : directory_("/tmp/cxl_kv_test_XXXXXX")
{
	if (!mkdtemp(directory_.data()))
		throw std::runtime_error("cannot make " + directory_);
	path_ = directory_ + "/control.sock";
}

TemporarySocket::~TemporarySocket()
{
	std::error_code ignored;
	std::filesystem::remove_all(directory_, ignored);
}

} // namespace cxlkv
