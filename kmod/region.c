// SPDX-License-Identifier: GPL-2.0
/*
 * CXL regions, as others may see them. The structures of the CXL drivers are
 * private to them; what they promise are a region's attributes in sysfs, which
 * are asked here by the functions that the region itself registers, so each
 * answer is given under the drivers' own locks. Where there is no CXL core,
 * there are no regions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "internal.h"
#include "node.h"

/* Found by name when it is asked for: no need of CXL where there is none. */
extern const struct bus_type cxl_bus_type;

/* The attribute @name of the device's type, of the group named @group or of those without a name. */
static struct attribute *find_attr(struct device *dev, const char *group, const char *name)
{
	const struct attribute_group **groups = dev->type ? dev->type->groups : NULL;
	int i, n;

	for (i = 0; groups && groups[i]; i++) {
		if (group ? !groups[i]->name || strcmp(groups[i]->name, group) : !!groups[i]->name)
			continue;
		for (n = 0; groups[i]->attrs && groups[i]->attrs[n]; n++)
			if (!strcmp(groups[i]->attrs[n]->name, name))
				return groups[i]->attrs[n];
	}
	return NULL;
}

/* Shows the attribute into a page. Returns its length, 0 where there is nothing to show. */
static ssize_t show_attr(struct device *dev, const char *group, const char *name, char *page)
{
	struct attribute *attr = find_attr(dev, group, name);
	struct device_attribute *dev_attr;
	ssize_t len;

	if (!attr)
		return 0;
	dev_attr = container_of(attr, struct device_attribute, attr);
	len = dev_attr->show ? dev_attr->show(dev, dev_attr, page) : 0;
	return max(len, 0);
}

static u64 read_number(struct device *dev, const char *group, const char *name, char *page)
{
	u64 value;

	if (!show_attr(dev, group, name, page) || kstrtoull(page, 0, &value))
		return 0;
	return value;
}

static bool is_region(const struct device *dev)
{
	return dev->type && dev->type->name && !strcmp(dev->type->name, "cxl_region");
}

static int look_at_region(struct device *dev, struct cxl_kv_region *region)
{
	char *page = (char *)get_zeroed_page(GFP_KERNEL);

	if (!page)
		return -ENOMEM;
	region->dev = dev;
	region->base = read_number(dev, NULL, "resource", page);
	region->size_bytes = read_number(dev, NULL, "size", page);
	region->is_ram = show_attr(dev, NULL, "mode", page) && sysfs_streq(page, "ram");
	/* The driver of regions takes none whose decoders it has not found in order. */
	region->committed = dev->driver && read_number(dev, NULL, "commit", page) == 1;
	free_page((unsigned long)page);
	return 0;
}

bool cxl_kv_region_is_committed(struct device *dev)
{
	struct cxl_kv_region region;

	return !look_at_region(dev, &region) && region.committed;
}

struct visit {
	int (*fn)(const struct cxl_kv_region *region, void *arg);
	void *arg;
};

static int visit_region(struct device *dev, void *arg)
{
	const struct visit *visit = arg;
	struct cxl_kv_region region;
	int ret;

	if (!is_region(dev))
		return 0;
	ret = look_at_region(dev, &region);
	return ret ?: visit->fn(&region, visit->arg);
}

int cxl_kv_regions_for_each(int (*fn)(const struct cxl_kv_region *region, void *arg), void *arg)
{
	const struct bus_type *bus = symbol_get(cxl_bus_type);
	struct visit visit = { .fn = fn, .arg = arg };
	int ret;

	if (!bus)
		return 0;
	ret = bus_for_each_dev(bus, NULL, &visit, visit_region);
	symbol_put(cxl_bus_type);
	return ret;
}

/* A device below a region, as deep as there is one, that a driver has. */
static int find_holder(struct device *dev, void *arg)
{
	struct cxl_kv_holder *holder = arg;

	if (dev->driver) {
		strscpy(holder->device, dev_name(dev), sizeof(holder->device));
		strscpy(holder->driver, dev_driver_string(dev), sizeof(holder->driver));
	}
	device_for_each_child(dev, holder, find_holder);
	return 0;
}

bool cxl_kv_region_is_held(const struct cxl_kv_region *region, struct cxl_kv_holder *holder)
{
	holder->driver[0] = 0;
	device_for_each_child(region->dev, holder, find_holder);
	return holder->driver[0];
}

struct range_search {
	u64 start, end;
	struct cxl_kv_holder *holder;
};

static int find_in_region(const struct cxl_kv_region *region, void *arg)
{
	const struct range_search *search = arg;

	if (!region->size_bytes || region->base > search->end ||
	    region->base + region->size_bytes - 1 < search->start)
		return 0;
	return cxl_kv_region_is_held(region, search->holder);
}

/* Soft-reserved memory is a platform device, hmem.N; other drivers' memory mostly too. */
static int find_platform_device(struct device *dev, void *arg)
{
	struct platform_device *pdev = to_platform_device(dev);
	const struct range_search *search = arg;
	struct resource *res;
	int i;

	if (!dev->driver)
		return 0;
	for (i = 0; (res = platform_get_resource(pdev, IORESOURCE_MEM, i)); i++) {
		if (res->start > search->end || res->end < search->start)
			continue;
		strscpy(search->holder->device, dev_name(dev), sizeof(search->holder->device));
		strscpy(search->holder->driver, dev_driver_string(dev),
			sizeof(search->holder->driver));
		return 1;
	}
	return 0;
}

/* Names of the resource tree cannot be read: its lock is not exported. Drivers can be asked for. */
bool cxl_kv_find_holder(u64 start, u64 end, struct cxl_kv_holder *holder)
{
	struct range_search search = { .start = start, .end = end, .holder = holder };

	if (cxl_kv_regions_for_each(find_in_region, &search) > 0)
		return true;
	return bus_for_each_dev(&platform_bus_type, NULL, &search, find_platform_device) > 0;
}

static void set_mode(struct device *dev, const struct attribute *attr, umode_t mode)
{
	int ret = sysfs_chmod_file(&dev->kobj, attr, mode);

	/* Not there: hidden for this kind of region. */
	if (ret && ret != -ENOENT)
		pr_warn("%s/%s keeps its mode: %d\n", dev_name(dev), attr->name, ret);
}

/*
 * What the region's drivers let others change of it, the region's end included,
 * while its memory is in use: nothing. A file of sysfs that has no write
 * permission cannot be opened for writing, whoever asks.
 */
void cxl_kv_region_freeze(struct device *region, bool frozen)
{
	const struct attribute_group **groups = region->type->groups;
	const struct attribute *attr;
	int i, n;

	for (i = 0; groups[i]; i++) {
		for (n = 0; !groups[i]->name && groups[i]->attrs && groups[i]->attrs[n]; n++) {
			attr = groups[i]->attrs[n];
			if (attr->mode & 0222)
				set_mode(region, attr, frozen ? attr->mode & ~0222 : attr->mode);
		}
	}
}

/* The same for the verb that deletes regions, of the root decoder that all of them hang from. */
void cxl_kv_region_freeze_parent(struct device *region, bool frozen)
{
	struct attribute *attr = find_attr(region->parent, NULL, "delete_region");

	if (attr)
		set_mode(region->parent, attr, frozen ? 0 : attr->mode);
}

/* What CDAT of its endpoints and HMAT of the way to them come to, as the drivers worked it out. */
bool cxl_kv_region_perf(struct device *region, struct access_coordinate *perf)
{
	char *page = (char *)get_zeroed_page(GFP_KERNEL);

	if (!page)
		return false;
	/* From the nearest CPU. */
	perf->read_latency = read_number(region, "access1", "read_latency", page);
	perf->write_latency = read_number(region, "access1", "write_latency", page);
	perf->read_bandwidth = read_number(region, "access1", "read_bandwidth", page);
	perf->write_bandwidth = read_number(region, "access1", "write_bandwidth", page);
	free_page((unsigned long)page);
	return perf->read_latency;
}
