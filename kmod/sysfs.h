/* SPDX-License-Identifier: GPL-2.0 */
/* What sysfs.c and sysfs_arena.c share. */
#ifndef CXL_KV_SYSFS_H
#define CXL_KV_SYSFS_H

#include <linux/device.h>
#include <linux/sysfs.h>

extern const struct class cxl_kv_class;

/* blocks.c */
extern const struct attribute_group cxl_kv_blocks_group;

/* A file that shows a value of the object, @it, that the device is part of. */
#define CXL_KV_SHOW(_name, _type, _fmt, _value)                                                    \
	static ssize_t _name##_show(struct device *dev, struct device_attribute *attr,             \
				    char *buf)                                                     \
	{                                                                                          \
		const _type *it = container_of(dev, _type, dev);                                   \
												   \
		return sysfs_emit(buf, _fmt "\n", _value);                                         \
	}                                                                                          \
	static DEVICE_ATTR_RO(_name)

#endif /* CXL_KV_SYSFS_H */
