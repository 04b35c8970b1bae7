/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/control_socket.h"

#include <cstddef>
#include <fcntl.h>
#include <memory>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace cxlkv {

namespace {

/* epoll data of the files that are not connections. Connection ids begin at 1 and count up. */
constexpr uint64_t kListener = UINT64_MAX;
constexpr uint64_t kWake = UINT64_MAX - 1;
constexpr uint64_t kOther = UINT64_MAX - 2;

Result<sockaddr_un> socket_address(const std::string &path)
{
	sockaddr_un address{};

	address.sun_family = AF_UNIX;
	if (path.empty() || path.size() >= sizeof(address.sun_path))
		return error(ENAMETOOLONG, "socket path must have 1 to 107 bytes: " + path);
	memcpy(address.sun_path, path.c_str(), path.size() + 1);
	return address;
}

/* A socket file that nobody listens on is left over from a killed daemon. */
Result<> remove_stale(const std::string &path, const sockaddr_un &address)
{
	Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct stat st;

	/* Connecting to what is no socket fails with ECONNREFUSED, too. */
	if (!lstat(path.c_str(), &st) && !S_ISSOCK(st.st_mode))
		return error(EINVAL, path + ": is not a socket, and is left alone; set "
					    "daemon.socket to another path");
	if (!connect(probe.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)))
		return error(EADDRINUSE, path + ": another daemon serves this socket");
	if (errno == ECONNREFUSED && unlink(path.c_str()))
		return sys_error("remove stale " + path);
	return ok();
}

bool watch(int epoll, int fd, uint32_t events, uint64_t id, int op = EPOLL_CTL_ADD)
{
	epoll_event event{};
	event.events = events;
	event.data.u64 = id;
	return !epoll_ctl(epoll, op, fd, &event);
}

} // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string &path)
{
	std::unique_ptr<ControlSocket> self(new ControlSocket);

	auto address = socket_address(path);
	if (!address)
		return address.error();
	if (auto removed = remove_stale(path, *address); !removed)
		return removed.error();
	self->listener_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	self->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
	self->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!self->listener_ || !self->epoll_ || !self->wake_)
		return sys_error("control socket");
	if (bind(self->listener_.get(), reinterpret_cast<const sockaddr *>(&*address),
		 sizeof(*address))) {
		if (errno == ENOENT)
			return error(ENOENT,
				     path + ": the folder of the control socket does not exist");
		return sys_error("bind " + path);
	}
	self->path_ = path;
	if (chmod(path.c_str(), 0660) || listen(self->listener_.get(), 64))
		return sys_error("listen on " + path);
	if (!watch(self->epoll_.get(), self->listener_.get(), EPOLLIN, kListener) ||
	    !watch(self->epoll_.get(), self->wake_.get(), EPOLLIN, kWake))
		return sys_error("epoll");
	return self;
}

ControlSocket::~ControlSocket()
{
	if (!path_.empty())
		unlink(path_.c_str());
}

void ControlSocket::accept_all()
{
	for (;;) {
		Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
		if (!fd)
			return; /* EAGAIN, or a peer that is gone already; EMFILE comes again */
		ucred cred{};
		socklen_t length = sizeof(cred);
		if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &cred, &length))
			continue;
		std::lock_guard lock(mutex_);
		if (connections_.size() >= kMaxConnections)
			continue;
		uint64_t id = next_++;
		if (!watch(epoll_.get(), fd.get(), EPOLLIN, id))
			continue;
		Connection &connection = connections_[id];
		connection.fd = std::move(fd);
		connection.peer = {id, cred.pid, cred.uid, cred.gid};
	}
}

/* False: end of file, an error, or more than a peer may send. */
bool ControlSocket::receive(Connection &connection)
{
	char data[16384];
	alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)];

	for (;;) {
		iovec iov{data, sizeof(data)};
		msghdr message{};
		message.msg_iov = &iov;
		message.msg_iovlen = 1;
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		ssize_t n = recvmsg(connection.fd.get(), &message, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		for (cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			size_t nr = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			for (size_t i = 0; i < nr; i++) {
				int fd;
				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
				connection.files.emplace_back(fd);
			}
		}
		if (n == 0 || message.msg_flags & MSG_CTRUNC || connection.files.size() > kMaxFiles)
			return false;
		connection.input.append(data, static_cast<size_t>(n));
		if (connection.input.size() >= kMaxLine)
			return true; /* serve lines first; what waits in the socket comes after */
	}
}

bool ControlSocket::serve_lines(Connection &connection, const Handler &handler)
{
	size_t begin = 0, end;

	while ((end = connection.input.find('\n', begin)) != std::string::npos) {
		if (!handler.line(connection.peer, connection.input.substr(begin, end - begin),
				  connection.files))
			return false;
		begin = end + 1;
	}
	connection.input.erase(0, begin);
	return connection.input.size() < kMaxLine;
}

/* Writes as much as the socket takes. A file travels with the first byte after its mark. */
bool ControlSocket::flush(Connection &connection)
{
	while (!connection.output.empty()) {
		size_t length = connection.output.size();
		bool with_file = false;
		if (!connection.output_files.empty()) {
			size_t mark = connection.output_files.front().first;
			with_file = mark == 0;
			if (!with_file)
				length = mark;
			else if (connection.output_files.size() > 1)
				length = connection.output_files[1].first;
		}
		iovec iov{connection.output.data(), length};
		msghdr message{};
		message.msg_iov = &iov;
		message.msg_iovlen = 1;
		alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
		if (with_file) {
			int fd = connection.output_files.front().second.get();
			message.msg_control = control;
			message.msg_controllen = sizeof(control);
			cmsghdr *c = CMSG_FIRSTHDR(&message);
			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(c), &fd, sizeof(fd));
		}
		ssize_t n = sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		if (with_file)
			connection.output_files.pop_front();
		connection.output.erase(0, static_cast<size_t>(n));
		for (auto &file : connection.output_files)
			file.first -= static_cast<size_t>(n);
	}
	return true;
}

bool ControlSocket::reply(uint64_t id, const std::string &line, int fd)
{
	std::lock_guard lock(mutex_);
	auto it = connections_.find(id);

	if (it == connections_.end() || it->second.dead)
		return false;
	Connection &connection = it->second;
	/* Each holds a file of ours open until the peer reads. */
	if (fd >= 0 && connection.output_files.size() >= kMaxFiles) {
		connection.dead = true;
		wake();
		return false;
	}
	if (fd >= 0)
		connection.output_files.emplace_back(connection.output.size(),
						     Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0)));
	connection.output += line;
	connection.output += '\n';
	/* Straight out where the socket takes it: an answer need not wait for the loop. */
	if (!flush(connection) || connection.output.size() > kMaxOutput)
		connection.dead = true;
	if (connection.dead)
		wake();
	else
		watch(epoll_.get(), connection.fd.get(),
		      connection.output.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, id, EPOLL_CTL_MOD);
	return !connection.dead;
}

Result<> ControlSocket::also_wake_on(int fd)
{
	return watch(epoll_.get(), fd, EPOLLIN, kOther) ? ok() : sys_error("epoll");
}

void ControlSocket::wake()
{
	eventfd_write(wake_.get(), 1);
}

void ControlSocket::close_dead(const Handler &handler)
{
	std::vector<Peer> gone;
	{
		std::lock_guard lock(mutex_);
		for (auto it = connections_.begin(); it != connections_.end();) {
			if (!it->second.dead) {
				++it;
				continue;
			}
			gone.push_back(it->second.peer);
			it = connections_.erase(it);
		}
	}
	for (const Peer &peer : gone)
		handler.hangup(peer);
}

Result<> ControlSocket::poll(const Handler &handler, int timeout_ms)
{
	epoll_event events[64];
	int nr = epoll_wait(epoll_.get(), events, 64, timeout_ms);

	if (nr < 0 && errno != EINTR)
		return sys_error("epoll_wait");
	for (int i = 0; i < nr; i++) {
		uint64_t id = events[i].data.u64;
		if (id == kListener) {
			accept_all();
			continue;
		}
		if (id == kWake) {
			eventfd_t value;
			eventfd_read(wake_.get(), &value);
		}
		if (id == kWake || id == kOther)
			continue;
		Connection *connection;
		{
			std::lock_guard lock(mutex_);
			connection = &connections_.at(id); /* only this thread erases */
			if (events[i].events & EPOLLOUT && !connection->dead) {
				connection->dead = !flush(*connection);
				if (!connection->dead && connection->output.empty())
					watch(epoll_.get(), connection->fd.get(), EPOLLIN, id,
					      EPOLL_CTL_MOD);
			}
		}
		bool alive = !(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) ||
			     receive(*connection);
		if (!serve_lines(*connection, handler) || !alive) {
			std::lock_guard lock(mutex_);
			connection->dead = true;
		}
	}
	close_dead(handler);
	return ok();
}

} // namespace cxlkv
