/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/doctor.h"

#include <cstdio>
#include <fmt/format.h>
#include <sys/stat.h>

namespace cxlkv {

namespace {

/* 6.12.117-amd64 -> 6012; 0 where it is no version. */
unsigned kernel_version(const std::string &release)
{
	unsigned major = 0, minor = 0;
	return sscanf(release.c_str(), "%u.%u", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

void examine_version(const std::string &release, Findings &out)
{
	unsigned version = kernel_version(release);

	if (!version)
		out.push_back({Finding::Warn, "kernel",
			       "its version is not to be seen, /proc is hidden",
			       "run doctor on the host"});
	else if (version < 6001)
		out.push_back({Finding::Bad, "kernel", "Linux " + release + " is too old",
			       "use Linux 6.1 or newer (userfaultfd write protection of shared "
			       "memory); the module "
			       "needs 6.8"});
	else if (version < 6008)
		out.push_back({Finding::Note, "kernel", "Linux " + release + ": native mode only",
			       "the module needs Linux 6.8 or newer"});
	else
		out.push_back({Finding::Good, "kernel", "Linux " + release, ""});
}

bool module_is_built(const Host &host, const std::string &release)
{
	for (const char *folder :
	     {"/updates/dkms/", "/updates/", "/extra/", "/kernel/drivers/misc/"})
		for (const std::string &name : host.names("/lib/modules/" + release + folder))
			if (name.rfind("cxl_kv.ko", 0) == 0)
				return true;
	return false;
}

void examine_module(const Host &host, const std::string &release, Findings &out)
{
	if (host.exists("/sys/module/cxl_kv")) {
		std::string version = host.line("/sys/module/cxl_kv/version");
		out.push_back({Finding::Good, "module", "cxl_kv " + version + " is loaded", ""});
	} else if (module_is_built(host, release)) {
		out.push_back(
			{Finding::Warn, "module", "cxl_kv is installed and not loaded",
			 "modprobe cxl_kv, then restart cxl-kvd; `dmesg` says why where it fails"});
	} else if (!host.names("/var/lib/dkms/cxl_kv").empty()) {
		out.push_back(
			{Finding::Warn, "module",
			 "DKMS has the source of cxl_kv and no module for " + release,
			 "install linux-headers-" + release +
				 ", then dkms autoinstall; where it fails, make.log below "
				 "/var/lib/dkms/cxl_kv says why. Until then it is native mode"});
	} else {
		out.push_back({Finding::Note, "module", "cxl_kv is not installed: native mode",
			       "nothing, unless the kernel is to sample page accesses or to keep "
			       "arenas; then install cxl-kv-dkms (or make kmod and insmod) and "
			       "restart cxl-kvd"});
	}
}

/* The variable's attributes, four bytes, and the value. */
bool secure_boot(const Host &host)
{
	std::string variable = host.line(
		"/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
	return variable.size() >= 5 && variable[4] == 1;
}

/* Only matters to who loads a module that nobody signed; one that is loaded was taken. */
void examine_signing(const Host &host, Findings &out)
{
	std::string lockdown = chosen(host.line("/sys/kernel/security/lockdown"));
	std::string why;

	if (host.line("/sys/module/module/parameters/sig_enforce") == "Y")
		why = "sig_enforce";
	else if (lockdown == "integrity" || lockdown == "confidentiality")
		why = "lockdown " + lockdown;
	if (secure_boot(host))
		why += why.empty() ? "" : ", Secure Boot";
	const char *enrol = host.exists("/var/lib/dkms/mok.pub")
				    ? "mokutil --import /var/lib/dkms/mok.pub, the key that DKMS "
				      "signs with, and reboot"
				    : "sign cxl_kv.ko with a key enrolled by mokutil";
	if (why.empty())
		out.push_back({Finding::Good, "signing", "modules need no signature", ""});
	else if (host.exists("/sys/module/cxl_kv"))
		out.push_back({Finding::Good, "signing", "cxl_kv was taken (" + why + ")", ""});
	else
		out.push_back({Finding::Warn, "signing",
			       "the kernel takes signed modules only (" + why + ")",
			       std::string(enrol) + "; or stay in native mode"});
	if (lockdown == "confidentiality")
		out.push_back({Finding::Warn, "lockdown",
			       "lockdown confidentiality keeps BPF from reading the kernel",
			       "sampling will not run; hints of engines still work"});
}

void examine_userfaultfd(const Host &host, Findings &out)
{
	struct stat device = {};

	if (stat(host.path("/dev/userfaultfd").c_str(), &device)) {
		out.push_back({Finding::Bad, "userfaultfd", "there is no /dev/userfaultfd",
			       "use a kernel with CONFIG_USERFAULTFD, 6.1 or newer; in a "
			       "container, give it the device"});
		return;
	}
	if (device.st_gid == 0 && !host.names("/run/systemd/system").empty())
		out.push_back({Finding::Warn, "userfaultfd",
			       "/dev/userfaultfd belongs to root only",
			       "install 60-cxl-kv.rules, then udevadm control --reload and udevadm "
			       "trigger "
			       "/dev/userfaultfd; or run cxl-kvd as root"});
	else
		out.push_back({Finding::Good, "userfaultfd", "/dev/userfaultfd is there", ""});
}

void examine_io_uring(const Host &host, Findings &out)
{
	std::string disabled = host.line("/proc/sys/kernel/io_uring_disabled");

	if (disabled == "2")
		out.push_back({Finding::Bad, "io_uring", "io_uring is disabled for everybody",
			       "sysctl kernel.io_uring_disabled=0 (or 1, with cxl-kvd in "
			       "kernel.io_uring_group)"});
	else if (disabled == "1")
		out.push_back({Finding::Warn, "io_uring", "io_uring is for one group only",
			       "put cxl-kvd into the group of sysctl kernel.io_uring_group"});
	else
		out.push_back({Finding::Good, "io_uring", "allowed", ""});
}

void examine_sampling(const Host &host, Findings &out)
{
	if (!host.exists("/sys/kernel/btf/vmlinux"))
		out.push_back({Finding::Warn, "BPF", "the kernel has no BTF",
			       "sampling will not run; use a kernel with CONFIG_DEBUG_INFO_BTF, as "
			       "Debian's"});
	else
		out.push_back({Finding::Good, "BPF", "the kernel has BTF", ""});

	const std::string events = "/sys/bus/event_source/devices/";
	if (host.exists(events + "ibs_op"))
		out.push_back({Finding::Good, "PMU", "IBS gives addresses of accesses", ""});
	else if (host.exists(events + "cpu/events/mem-loads"))
		out.push_back({Finding::Good, "PMU", "PEBS gives addresses of accesses", ""});
	else
		out.push_back({Finding::Note, "PMU",
			       "no event here gives addresses of accesses, as in most VMs",
			       "nothing: the module samples page tables instead. Neither sees what "
			       "a GPU reads; "
			       "there the engine has to give hints"});
}

void examine_container(const Host &host, Findings &out)
{
	for (const std::string &line : host.lines("/proc/self/status"))
		if (line == "Seccomp:\t2")
			out.push_back({Finding::Note, "seccomp",
				       "this process runs under a seccomp filter",
				       "where cxl-kvd or an engine runs so too, allow "
				       "userfaultfd's ioctls, io_uring, "
				       "mlock2, mbind and move_pages"});
	if (host.exists("/.dockerenv") || host.exists("/run/.containerenv"))
		out.push_back({Finding::Note, "container", "this is a container",
			       "run cxl-kvd on the host and mount its folder, /run/cxl-kv, "
			       "where engines run"});
}

} // namespace

const char *level_name(Finding::Level level)
{
	switch (level) {
	case Finding::Good:
		return "good";
	case Finding::Note:
		return "note";
	case Finding::Warn:
		return "warn";
	case Finding::Bad:
		return "BAD";
	}
	return "";
}

void examine_kernel(const Host &host, Findings &out)
{
	std::string release = host.line("/proc/sys/kernel/osrelease");

	examine_version(release, out);
	examine_module(host, release, out);
	examine_signing(host, out);
	examine_userfaultfd(host, out);
	examine_io_uring(host, out);
	examine_sampling(host, out);
	examine_container(host, out);
}

} // namespace cxlkv
