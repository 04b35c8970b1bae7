// SPDX-License-Identifier: GPL-2.0
/*
 * cxl_kv: memory tiers for the KV cache of language models.
 *
 * The module makes a CXL endpoint's memory a NUMA node with a memory tier of
 * its own, keeps the arenas of clients across restarts of their manager
 * (cxl-kvd), and takes the hints and samples that the manager's policy needs.
 * It moves no pages: that is the manager's work, by move_pages(2).
 *
 * This file: /dev/cxl_kv, its command table, and the module's start and end.
 */
#include <linux/capability.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "node.h"

static u32 release_number(void)
{
	unsigned int major = 0, minor = 0, patch = 0;

	if (sscanf(CXL_KV_VERSION, "%u.%u.%u", &major, &minor, &patch) != 3)
		return 0;
	return major << 16 | minor << 8 | patch;
}

static int cxl_kv_info(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_info *info = cmd->buf;

	info->abi_version = CXL_KV_ABI_VERSION;
	info->version = release_number();
	info->features = CXL_KV_FEATURE_HINTS | cxl_kv_sample_features();
	mutex_lock(&cxl_kv_registry.lock);
	info->nr_arenas = cxl_kv_registry.nr_arenas;
	info->has_manager = !!cxl_kv_registry.manager;
	mutex_unlock(&cxl_kv_registry.lock);
	return cxl_kv_respond(cmd);
}

union cmd_buffer {
	struct cxl_kv_info info;
	struct cxl_kv_attach_manager attach_manager;
	struct cxl_kv_arena_register arena_register;
	struct cxl_kv_arena_unregister arena_unregister;
	struct cxl_kv_next_event next_event;
	struct cxl_kv_arena_get arena_get;
	struct cxl_kv_arena_set_key arena_set_key;
	struct cxl_kv_hints hints;
	struct cxl_kv_hints_read hints_read;
	struct cxl_kv_state_read state_read;
	struct cxl_kv_sample_set sample_set;
};

struct cxl_kv_op {
	unsigned int ioctl;
	size_t size;	     /* of the structure as this kernel knows it */
	size_t min_size;     /* of its first version */
	size_t reserved_off; /* of a __u32 that must be zero; 0 = it has none */
	u32 flags;	     /* that it knows */
	bool manager_only;
	int (*execute)(struct cxl_kv_cmd *cmd);
};

#define CXL_KV_OP(_ioctl, _execute, _struct, _last, ...)                                           \
	[_IOC_NR(_ioctl)] = {                                                                      \
		.ioctl = _ioctl,                                                                   \
		.size = sizeof(struct _struct) +                                                   \
			BUILD_BUG_ON_ZERO(sizeof(union cmd_buffer) < sizeof(struct _struct)),      \
		.min_size = offsetofend(struct _struct, _last),                                    \
		.execute = _execute,                                                               \
		##__VA_ARGS__                                                                      \
	}
#define RESERVED(_struct) .reserved_off = offsetof(struct _struct, reserved)
#define MANAGER .manager_only = true

static const struct cxl_kv_op cxl_kv_ops[] = {
	CXL_KV_OP(CXL_KV_IOC_INFO, cxl_kv_info, cxl_kv_info, has_manager),
	CXL_KV_OP(CXL_KV_IOC_ATTACH_MANAGER, cxl_kv_manager_attach, cxl_kv_attach_manager, flags),
	CXL_KV_OP(CXL_KV_IOC_ARENA_REGISTER, cxl_kv_arena_register, cxl_kv_arena_register,
		  ring_offset),
	CXL_KV_OP(CXL_KV_IOC_ARENA_UNREGISTER, cxl_kv_arena_unregister, cxl_kv_arena_unregister,
		  reserved, RESERVED(cxl_kv_arena_unregister)),
	CXL_KV_OP(CXL_KV_IOC_NEXT_EVENT, cxl_kv_manager_next_event, cxl_kv_next_event, arena,
		  MANAGER),
	CXL_KV_OP(CXL_KV_IOC_ARENA_GET, cxl_kv_manager_arena_get, cxl_kv_arena_get, layer_windows,
		  RESERVED(cxl_kv_arena_get), MANAGER),
	CXL_KV_OP(CXL_KV_IOC_ARENA_SET_KEY, cxl_kv_manager_set_key, cxl_kv_arena_set_key, key,
		  RESERVED(cxl_kv_arena_set_key), MANAGER),
	CXL_KV_OP(CXL_KV_IOC_HINT, cxl_kv_hint_ioctl, cxl_kv_hints, reserved,
		  RESERVED(cxl_kv_hints)),
	CXL_KV_OP(CXL_KV_IOC_HINTS_READ, cxl_kv_hints_read, cxl_kv_hints_read, reserved,
		  RESERVED(cxl_kv_hints_read), MANAGER),
	CXL_KV_OP(CXL_KV_IOC_HEADS_READ, cxl_kv_heads_read, cxl_kv_state_read, out,
		  RESERVED(cxl_kv_state_read), MANAGER),
	CXL_KV_OP(CXL_KV_IOC_SLOTS_READ, cxl_kv_slots_read, cxl_kv_state_read, out,
		  RESERVED(cxl_kv_state_read), MANAGER),
	CXL_KV_OP(CXL_KV_IOC_SAMPLE_SET, cxl_kv_sample_set, cxl_kv_sample_set, budget_permil,
		  .flags = CXL_KV_SAMPLE_FLUSH_TLB, MANAGER),
};

/* Copies the answer back, as much of it as the caller's structure has. */
int cxl_kv_respond(const struct cxl_kv_cmd *cmd)
{
	if (copy_to_user(cmd->user, cmd->buf, min_t(size_t, cmd->user_size, cmd->size)))
		return -EFAULT;
	return 0;
}

static int check_cmd(const struct cxl_kv_op *op, const struct cxl_kv_cmd *cmd)
{
	const u32 *words = cmd->buf;

	if (words[1] & ~op->flags)
		return -EOPNOTSUPP;
	if (op->reserved_off && words[op->reserved_off / sizeof(u32)])
		return -EOPNOTSUPP;
	if (op->manager_only && !cxl_kv_is_manager(cmd->file))
		return -EPERM;
	return 0;
}

static long cxl_kv_ioctl(struct file *filp, unsigned int ioctl, unsigned long arg)
{
	unsigned int nr = _IOC_NR(ioctl);
	const struct cxl_kv_op *op;
	union cmd_buffer buf;
	struct cxl_kv_cmd cmd = {
		.file = filp->private_data,
		.user = (void __user *)arg,
		.buf = &buf,
	};
	int ret;

	if (nr >= ARRAY_SIZE(cxl_kv_ops) || cxl_kv_ops[nr].ioctl != ioctl)
		return -ENOTTY;
	op = &cxl_kv_ops[nr];
	cmd.size = op->size;

	if (get_user(cmd.user_size, (u32 __user *)cmd.user))
		return -EFAULT;
	if (cmd.user_size < op->min_size)
		return -EINVAL;
	if (cmd.user_size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&buf, op->size, cmd.user, cmd.user_size);
	if (ret)
		return ret;
	ret = check_cmd(op, &cmd);
	if (ret)
		return ret;
	return op->execute(&cmd);
}

/*
 * Set when the module's init can no longer fail: a module whose init fails is
 * freed without a look at its references, so no file may be open by then.
 * misc_deregister() waits for an open that is under way.
 */
static bool cxl_kv_ready;

static int cxl_kv_open(struct inode *inode, struct file *filp)
{
	struct cxl_kv_file *file;

	if (!READ_ONCE(cxl_kv_ready))
		return -ENODEV;
	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	INIT_LIST_HEAD(&file->arenas);
	filp->private_data = file;
	return 0;
}

static int cxl_kv_release(struct inode *inode, struct file *filp)
{
	struct cxl_kv_file *file = filp->private_data;

	cxl_kv_manager_close(file);
	cxl_kv_arenas_close(file);
	kfree(file);
	return 0;
}

static const struct file_operations cxl_kv_fops = {
	.owner = THIS_MODULE,
	.open = cxl_kv_open,
	.release = cxl_kv_release,
	.unlocked_ioctl = cxl_kv_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = cxl_kv_manager_poll,
	.mmap = cxl_kv_ring_mmap,
};

static struct miscdevice cxl_kv_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "cxl_kv",
	.fops = &cxl_kv_fops,
	.mode = 0660,
};

static int __init cxl_kv_init(void)
{
	int ret;

	ret = cxl_kv_sample_init();
	if (ret)
		return ret;
	ret = cxl_kv_sysfs_init();
	if (ret)
		goto err_sample;
	ret = misc_register(&cxl_kv_misc);
	if (ret)
		goto err_sysfs;
	/* Last: from the first byte of memory that it adds, the module cannot go away. */
	ret = cxl_kv_nodes_init();
	if (ret)
		goto err_misc;
	WRITE_ONCE(cxl_kv_ready, true);
	return 0;

err_misc:
	misc_deregister(&cxl_kv_misc);
err_sysfs:
	cxl_kv_sysfs_exit();
err_sample:
	cxl_kv_sample_exit();
	return ret;
}

static void __exit cxl_kv_exit(void)
{
	/* No file is open and no memory is added, or the module would be in use. */
	cxl_kv_nodes_exit();
	misc_deregister(&cxl_kv_misc);
	cxl_kv_sysfs_exit();
	cxl_kv_sample_exit();
}

module_init(cxl_kv_init);
module_exit(cxl_kv_exit);

MODULE_DESCRIPTION("CXL memory tiers for KV caches: nodes, hints and access sampling");
MODULE_AUTHOR("The cxl-kv authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(CXL_KV_VERSION);
