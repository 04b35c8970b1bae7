// SPDX-License-Identifier: LGPL-2.1-or-later
#include "lib/daemon_process.h"

#include "base/fd.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>

namespace cxlkv {

namespace {

/* Of the folders above this program, the one that the daemon was built in. */
std::filesystem::path build_folder()
{
	auto folder = std::filesystem::canonical("/proc/self/exe").parent_path();

	while (folder.has_relative_path() && !exists(folder / "bin/cxl-kvd"))
		folder = folder.parent_path();
	return folder;
}

/* The spill file wants a disk, which /tmp may not be: beside the programs. */
std::string new_folder()
{
	std::string folder = (build_folder() / "daemon.XXXXXX").string();

	if (!mkdtemp(folder.data()))
		throw std::runtime_error("cannot make " + folder);
	return folder;
}

bool listens(const std::string &path)
{
	sockaddr_un address{};
	Fd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

	address.sun_family = AF_UNIX;
	path.copy(address.sun_path, sizeof(address.sun_path) - 1);
	return !connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address));
}

} // namespace

DaemonProcess::DaemonProcess(std::vector<std::string> settings) : folder_(new_folder())
{
	/* A socket's path has 107 characters at most, which a build folder may exceed. */
	char link[] = "/tmp/cxl_kvd_XXXXXX";

	if (!mkdtemp(link))
		throw std::runtime_error("cannot make a folder in /tmp");
	socket_ = std::string(link) + "/socket";
	for (char **variable = environ; *variable; variable++)
		environment_.emplace_back(*variable);
	settings.push_back("DAEMON__SOCKET=" + socket_);
	settings.push_back("COLD__PATH=" + folder_ + "/spill");
	for (const std::string &setting : settings)
		environment_.push_back("CXL_KV_" + setting);
}

DaemonProcess::~DaemonProcess()
{
	std::error_code ignored;

	kill();
	check_log();
	std::filesystem::remove_all(folder_, ignored);
	std::filesystem::remove_all(std::filesystem::path(socket_).parent_path(), ignored);
}

void DaemonProcess::start()
{
	const std::string program = (build_folder() / "bin/cxl-kvd").string();
	/* It ends with the thread that starts it, so that a test may be killed. */
	std::vector<std::string> words = {"setpriv", "--pdeathsig", "KILL",
					  program,   "--config",    "/dev/null"};
	std::vector<char *> arguments;
	posix_spawn_file_actions_t actions;
	std::vector<char *> environment;

	for (std::string &variable : environment_)
		environment.push_back(variable.data());
	environment.push_back(nullptr);
	for (std::string &word : words)
		arguments.push_back(word.data());
	arguments.push_back(nullptr);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ + "/log").c_str(),
					 O_CREAT | O_APPEND | O_WRONLY, 0600);
	int rc = posix_spawnp(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(),
			      environment.data());
	posix_spawn_file_actions_destroy(&actions);
	if (rc)
		throw std::runtime_error("cannot start " + words[0] + " of util-linux");
	for (int i = 0; i < 2000; i++) {
		if (listens(socket_))
			return;
		if (waitpid(pid_, nullptr, WNOHANG) == pid_)
			break;
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
	throw std::runtime_error("cxl-kvd did not start:\n" + log());
}

void DaemonProcess::kill()
{
	end(SIGKILL);
}

void DaemonProcess::terminate()
{
	end(SIGTERM);
}

void DaemonProcess::end(int signal)
{
	if (pid_ <= 0)
		return;
	::kill(pid_, signal);
	waitpid(pid_, nullptr, 0);
	pid_ = -1;
}

void DaemonProcess::signal(int number) const
{
	::kill(pid_, number);
}

void DaemonProcess::limit_files(uint64_t nr) const
{
	rlimit limit{};

	prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit);
	limit.rlim_cur = nr;
	prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr);
}

bool DaemonProcess::runs() const
{
	siginfo_t info{};

	return pid_ > 0 &&
	       !waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) &&
	       !info.si_pid;
}

/* A daemon built with a sanitizer may have gone on after its report, or ended when nobody looked.
 */
void DaemonProcess::check_log() const
{
	const std::string text = log();

	for (const char *sign : {"Sanitizer", "runtime error:"})
		if (text.find(sign) != std::string::npos) {
			std::cerr << text << std::flush;
			std::_Exit(1);
		}
}

std::string DaemonProcess::log() const
{
	std::ostringstream text;

	text << std::ifstream(folder_ + "/log").rdbuf();
	return text.str();
}

} // namespace cxlkv
