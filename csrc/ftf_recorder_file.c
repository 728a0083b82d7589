/* CONTEXT: NORMAL. See ftf_recorder_file.h.

   The file is allocated whole, so that a full disk is met here and not later. What is stored into its mapping belongs to
   the kernel's page cache and survives any death of the process. On a network file system a write may wait for a server, and
   with it the end of the process, so there the file lies in a directory of this machine and the run folder gets a link. */
#include "ftf_recorder_file.h"

#include "ftf_hook.h"
#include "ftf_record.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#define JOB_BYTES (16 * 1024)
#define PROCESS_BYTES (8 * 1024)
#define THREADS_BYTES (4 * 1024)
#define PHASE_BYTES 2048
#define NOTE_BYTES (FTF_NOTE_SIZE + 64)
#define MOST_NAMES 100

static char link_path[FTF_PATH_SIZE + 600]; /* in the run folder, "" when the file itself lies there */
static char local_directory[512]; /* made for it, "" none */
static int made_folder; /* pid of who made the run folder again */

/* f_type of statfs(2) for what another machine serves, or a daemon: man 2 statfs, and for those that are not in the kernel
   the list of coreutils' stat. */
static bool is_network(int64_t type)
{
    static const uint32_t types[] = {
        NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, 0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x65735546, /* FUSE: sshfs, s3fs, gcsfuse, JuiceFS, GlusterFS; virtiofs too */
        0x19830326, /* BeeGFS */
        0x00c36400, /* Ceph */
        0x01021997, /* 9p */
        0x5346414f, /* AFS */
        0x6b414653, /* kAFS */
        0xaad7aaea, /* PanFS */
        0x7461636f, /* OCFS2 */
        0x01161970, /* GFS2 */
    };
    for (size_t i = 0; i < FTF_LENGTH(types); i++)
        if ((uint32_t)type == types[i])
            return true;
    return false;
}

static bool lies_on_network(const char *directory)
{
    struct statfs fs;
    if (ftf_hook_is_set("network"))
        return true;
    return ftf_syscall2(SYS_statfs, directory, &fs) == 0 && is_network(fs.f_type);
}

/* A directory of our own where everybody can write: anybody could have made that name first (capture/folder.py, _private). */
static int make_private(const char *directory)
{
    struct stat st;
    long made = ftf_mkdir(directory, 0700);
    if (made == 0 || made != -EEXIST)
        return (int)made;
    if (ftf_syscall4(SYS_newfstatat, AT_FDCWD, directory, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -EACCES;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0 ? 0 : -EPERM;
}

static int create_in(const char *directory)
{
    long fd = -EEXIST;
    for (int counter = 0; counter < MOST_NAMES && fd == -EEXIST; counter++) {
        ftf_record_name(ftf_ring.path, sizeof ftf_ring.path, directory, ".ring", counter);
        fd = ftf_open(ftf_ring.path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd == -ENOENT && directory == ftf.directory) { /* another rank that ended took the empty folder away */
            ftf_record_make_directory();
            made_folder = ftf.pid;
            fd = ftf_open(ftf_ring.path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        }
    }
    return (int)fd;
}

static void link_from_folder(void)
{
    long made = -EEXIST;
    for (int counter = 0; counter < MOST_NAMES && made == -EEXIST; counter++) {
        ftf_record_name(link_path, sizeof link_path, ftf.directory, ".ring", counter);
        made = ftf_syscall3(SYS_symlinkat, ftf_ring.path, AT_FDCWD, link_path);
    }
    if (made != 0)
        link_path[0] = 0;
}

static int create(const char *local, const char **failed)
{
    link_path[0] = local_directory[0] = 0;
    *failed = "open";
    if (!local || local[0] == 0 || !lies_on_network(ftf.directory))
        return create_in(ftf.directory);
    int made = make_private(local);
    if (made != 0)
        return made;
    int fd = create_in(local);
    strncpy(local_directory, local, sizeof local_directory - 1);
    if (fd >= 0)
        link_from_folder();
    return fd;
}

/* Somebody may have moved the file and put another there. */
static bool is_still_there(void)
{
    struct stat st;
    return ftf_ring.path[0] && ftf_syscall4(SYS_newfstatat, AT_FDCWD, ftf_ring.path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)st.st_dev == ftf_ring.device && (uint64_t)st.st_ino == ftf_ring.inode;
}

/* Room on the disk for all of it. The limit on file size would end the job by SIGXFSZ. */
static int allocate(int fd, size_t size, const char **failed)
{
    struct rlimit limit;
    static const char zeros[4096];
    *failed = "fallocate";
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
        return -EFBIG;
    long made = ftf_syscall4(SYS_fallocate, fd, 0, 0, size);
    for (size_t at = 0; made == -EOPNOTSUPP && at < size;) {
        long wrote = ftf_syscall4(SYS_pwrite64, fd, zeros, size - at < sizeof zeros ? size - at : sizeof zeros, at);
        if (wrote <= 0)
            return wrote == 0 ? -EIO : (int)wrote;
        at += (size_t)wrote;
        if (at >= size)
            made = 0;
    }
    return (int)made;
}

static size_t lay_out(struct ftf_ring_header *header, const struct ftf_ring_plan *plan)
{
    const struct {
        uint32_t slot, count;
    } sections[FTF_RING_SECTIONS] = {
        [FTF_RING_JOB] = {JOB_BYTES, 1},
        [FTF_RING_PROCESS] = {PROCESS_BYTES, 2},
        [FTF_RING_THREADS] = {THREADS_BYTES, 2},
        [FTF_RING_PHASE] = {PHASE_BYTES, 2},
        [FTF_RING_NOTE] = {NOTE_BYTES, 2},
        [FTF_RING_STEP] = {sizeof(struct ftf_ring_step), 2},
        [FTF_RING_FAST] = {sizeof(struct ftf_ring_fast), plan->fast},
        [FTF_RING_SLOW] = {sizeof(struct ftf_ring_slow), plan->slow},
        [FTF_RING_SIGNALS] = {sizeof(struct ftf_ring_signal), plan->signals},
        [FTF_RING_MARKS] = {sizeof(struct ftf_ring_marked), plan->marks},
    };
    size_t at = FTF_RING_HEADER_BYTES;
    for (int i = 0; i < FTF_RING_SECTIONS; i++) {
        header->table[i] = (struct ftf_ring_table){at, sections[i].slot, sections[i].count};
        at += (size_t)sections[i].slot * sections[i].count;
    }
    header->version = FTF_RING_VERSION;
    header->header_size = FTF_RING_HEADER_BYTES;
    header->sections = FTF_RING_SECTIONS;
    header->file_size = (at + 4095) / 4096 * 4096;
    return header->file_size;
}

static int map(int fd, uint8_t *where, size_t size, const char **failed)
{
    *failed = "mmap";
    void *made = mmap(where, size, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
    if (made == MAP_FAILED)
        return -ENOMEM;
    ftf_ring.file = made;
    ftf_ring.lost = false;
    return 0;
}

/* A file of that size, in ftf_ring and the names above. */
static int make_file(size_t size, const char *local, const char **failed)
{
    int fd = create(local, failed);
    if (fd < 0)
        return fd;
    struct stat st = {0};
    ftf_fstat(fd, &st);
    ftf_ring.device = (uint64_t)st.st_dev;
    ftf_ring.inode = (uint64_t)st.st_ino;
    ftf_ring.file = 0;
    int result = allocate(fd, size, failed);
    if (result == 0)
        result = map(fd, 0, size, failed);
    ftf_close(fd);
    if (result != 0)
        ftf_ring_file_remove();
    return result;
}

int ftf_ring_file_make(const struct ftf_ring_plan *plan, const char *local, const char **failed)
{
    struct ftf_ring_header header = plan->header;
    size_t size = lay_out(&header, plan);
    *failed = "mmap";
    uint8_t *base = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    int result = make_file(size, local, failed);
    if (result != 0) {
        munmap(base, size);
        return result;
    }
    memcpy(header.magic, FTF_RING_MAGIC, sizeof header.magic);
    memcpy(base, &header, sizeof header);
    memcpy(ftf_ring.table, header.table, sizeof ftf_ring.table);
    memset(ftf_ring.numbers, 0, sizeof ftf_ring.numbers);
    memset(ftf_ring.saved, 0, sizeof ftf_ring.saved);
    ftf_ring.size = size;
    ftf_ring.anew = true;
    ftf_ring.pid = ftf.pid;
    __atomic_store_n(&ftf_ring.base, base, __ATOMIC_RELEASE);
    return 0;
}

/* Everything that says which file it is. */
struct place {
    char path[sizeof ftf_ring.path];
    char link[sizeof link_path];
    char local[sizeof local_directory];
    uint8_t *file;
    uint64_t device, inode;
};

static void note_place(struct place *place)
{
    memcpy(place->path, ftf_ring.path, sizeof place->path);
    memcpy(place->link, link_path, sizeof place->link);
    memcpy(place->local, local_directory, sizeof place->local);
    place->file = ftf_ring.file;
    place->device = ftf_ring.device;
    place->inode = ftf_ring.inode;
}

static void go_to_place(const struct place *place)
{
    memcpy(ftf_ring.path, place->path, sizeof place->path);
    memcpy(link_path, place->link, sizeof place->link);
    memcpy(local_directory, place->local, sizeof place->local);
    ftf_ring.file = place->file;
    ftf_ring.device = place->device;
    ftf_ring.inode = place->inode;
}

int ftf_ring_file_move(const char *local, const char **failed)
{
    static struct place old, made;
    note_place(&old);
    int result = make_file(ftf_ring.size, local, failed);
    note_place(&made);
    go_to_place(&old);
    if (result != 0)
        return result;
    ftf_ring_file_remove();
    go_to_place(&made);
    if (old.file)
        munmap(old.file, ftf_ring.size);
    __atomic_store_n(&ftf_ring.anew, true, __ATOMIC_RELEASE);
    return 0;
}

bool ftf_ring_file_made_folder(void) { return made_folder == ftf.pid; }

bool ftf_ring_file_is_in_place(void)
{
    const char *path = link_path[0] ? link_path : ftf_ring.path;
    char wanted[sizeof ftf_ring.path];
    ftf_record_name(wanted, sizeof wanted, ftf.directory, "", 0);
    return ftf_starts_with(path, wanted);
}

void ftf_ring_file_remove(void)
{
    if (is_still_there())
        ftf_unlink(ftf_ring.path);
    if (link_path[0])
        ftf_unlink(link_path);
    if (local_directory[0])
        ftf_syscall3(SYS_unlinkat, AT_FDCWD, local_directory, AT_REMOVEDIR); /* other ranks' rings keep it */
    ftf_ring.path[0] = link_path[0] = local_directory[0] = 0;
}

/* Our file, opened again, or -1. */
static int reopen(void)
{
    struct stat st;
    if (!is_still_there())
        return -1;
    int fd = (int)ftf_open(ftf_ring.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (ftf_fstat(fd, &st) == 0 && (uint64_t)st.st_ino == ftf_ring.inode)
        return fd;
    ftf_close(fd);
    return -1;
}

void ftf_ring_file_mend(void)
{
    const char *failed;
    int fd = reopen();
    if (fd < 0)
        return;
    if (allocate(fd, ftf_ring.size, &failed) == 0 && map(fd, ftf_ring.file, ftf_ring.size, &failed) == 0)
        __atomic_store_n(&ftf_ring.anew, true, __ATOMIC_RELEASE);
    ftf_close(fd);
}

void ftf_ring_file_shrink(void)
{
    static const uint8_t nothing[4096];
    size_t page = sizeof nothing;
    int fd = reopen();
    if (fd < 0)
        return;
    for (size_t at = 0, begin; at < ftf_ring.size; at += page) {
        for (begin = at; at < ftf_ring.size && memcmp(ftf_ring.base + at, nothing, page) == 0;)
            at += page;
        if (at > begin) /* where the file system cannot, it stays as large as it was */
            ftf_syscall4(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, at - begin);
    }
    ftf_close(fd);
}

void ftf_ring_file_forget(void)
{
    uint8_t *base = __atomic_exchange_n(&ftf_ring.base, 0, __ATOMIC_ACQ_REL);
    if (base)
        munmap(base, ftf_ring.size);
    if (ftf_ring.file)
        munmap(ftf_ring.file, ftf_ring.size);
    ftf_ring.file = 0;
    ftf_ring.path[0] = link_path[0] = local_directory[0] = 0;
}
