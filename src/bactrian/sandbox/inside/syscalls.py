"""Numbers of system calls on x86-64 and aarch64 (Linux UAPI: ``asm/unistd_64.h`` and ``asm-generic/unistd.h``).

Each entry is ``name:x86-64:aarch64``; a dash where the architecture lacks the call.
"""

from __future__ import annotations

ORDINARY = """
read:0:63  write:1:64  readv:19:65  writev:20:66  pread64:17:67  pwrite64:18:68  preadv:295:69
pwritev:296:70  preadv2:327:286  pwritev2:328:287  open:2:-  openat:257:56  openat2:437:437  creat:85:-
close:3:57  close_range:436:436  lseek:8:62  dup:32:23  dup2:33:-  dup3:292:24  pipe:22:-  pipe2:293:59
flock:73:32  fsync:74:82  fdatasync:75:83  ftruncate:77:46  truncate:76:45  fallocate:285:47
fadvise64:221:223  copy_file_range:326:285  sendfile:40:71  stat:4:-  lstat:6:-  fstat:5:80
newfstatat:262:79  statx:332:291  statfs:137:43  fstatfs:138:44  access:21:-  faccessat:269:48
faccessat2:439:439  readlink:89:-  readlinkat:267:78  getdents:78:-  getdents64:217:61  getcwd:79:17
chdir:80:49  fchdir:81:50  umask:95:166  mkdir:83:-  mkdirat:258:34  rmdir:84:-  unlink:87:-
unlinkat:263:35  rename:82:-  renameat:264:38  renameat2:316:276  link:86:-  linkat:265:37  symlink:88:-
symlinkat:266:36  mmap:9:222  munmap:11:215  mprotect:10:226  mremap:25:216  madvise:28:233  msync:26:227
mincore:27:232  brk:12:214  mlock:149:228  munlock:150:229  mlock2:325:284  membarrier:324:283
rseq:334:293  rt_sigaction:13:134  rt_sigprocmask:14:135  rt_sigreturn:15:139  rt_sigsuspend:130:133
rt_sigpending:127:136  rt_sigtimedwait:128:137  sigaltstack:131:132  pause:34:-  alarm:37:-
getitimer:36:102  setitimer:38:103  timer_create:222:107  timer_settime:223:110  timer_gettime:224:108
timer_delete:226:111  timer_getoverrun:225:109  nanosleep:35:101  clock_nanosleep:230:115
clock_gettime:228:113  clock_getres:229:114  gettimeofday:96:169  time:201:-  times:100:153  getpid:39:172
getppid:110:173  gettid:186:178  getuid:102:174  geteuid:107:175  getgid:104:176  getegid:108:177
getgroups:115:158  getresuid:118:148  getresgid:120:150  getpgrp:111:-
getrlimit:97:163  getrusage:98:165  sysinfo:99:179  uname:63:160  getcpu:309:168
sched_yield:24:124  sched_get_priority_max:146:125  sched_get_priority_min:147:126
set_robust_list:273:99  set_tid_address:218:96  futex:202:98  futex_waitv:449:449
arch_prctl:158:-  restart_syscall:219:128  getrandom:318:278  exit:60:93  exit_group:231:94  select:23:-
pselect6:270:72  poll:7:-  ppoll:271:73  epoll_create:213:-  epoll_create1:291:20  epoll_ctl:233:21
epoll_wait:232:-  epoll_pwait:281:22  epoll_pwait2:441:441  eventfd:284:-  eventfd2:290:19
timerfd_create:283:85  timerfd_settime:286:86  timerfd_gettime:287:87  signalfd:282:-  signalfd4:289:74
recvmsg:47:212  sendmsg:46:211  recvfrom:45:207  sendto:44:206  shutdown:48:210  getsockopt:55:209
getsockname:51:204  getpeername:52:205  wait4:61:260  waitid:247:95
"""
"""Calls that act on the process itself and on files that it may open."""

ATTRIBUTES = """
chmod:90:-  fchmod:91:52  fchmodat:268:53  utime:132:-  utimes:235:-  utimensat:280:88  futimesat:261:-
"""
"""Calls that change the attributes of files by path. Landlock does not guard them."""

PROCESSES = """
fork:57:-  vfork:58:-  execve:59:221  execveat:322:281  setsid:112:157  setpgid:109:154
"""
"""Calls that start processes and programs, and leave their group."""

CHECKED = """
fcntl:72:25  kill:62:129  tgkill:234:131  tkill:200:130  prlimit64:302:261  prctl:157:167  ioctl:16:29  clone:56:220
clone3:435:435  socketpair:53:199  setrlimit:160:164  getpgid:121:155  getsid:124:156
sched_getaffinity:204:123  sched_getparam:143:121  sched_getscheduler:145:120  get_robust_list:274:100
getpriority:140:141
"""
"""Calls whose arguments decide."""

REFUSED = """
setsockopt:54:208  splice:275:76  tee:276:77  readahead:187:213  sync_file_range:277:84  socket:41:198
connect:42:203  bind:49:200  listen:50:201  accept:43:202  accept4:288:242  ptrace:101:117
process_vm_readv:310:270  process_vm_writev:311:271  kcmp:312:272  bpf:321:280  perf_event_open:298:241
userfaultfd:323:282  keyctl:250:219  add_key:248:217  request_key:249:218  io_uring_setup:425:425
io_uring_enter:426:426  io_uring_register:427:427  io_setup:206:0  unshare:272:97  setns:308:268
mount:165:40  umount2:166:39  move_mount:429:429  open_tree:428:428  fsopen:430:430  fsconfig:431:431
fsmount:432:432  fspick:433:433  mount_setattr:442:442  pivot_root:155:41  chroot:161:51  swapon:167:224
swapoff:168:225  reboot:169:142  init_module:175:105  finit_module:313:273  delete_module:176:106
kexec_load:246:104  kexec_file_load:320:294  personality:135:92  memfd_create:319:279
memfd_secret:447:447  shmget:29:194  shmat:30:196  shmctl:31:195  semget:64:190  semop:65:193
semctl:66:191  msgget:68:186  msgsnd:69:189  msgrcv:70:188  msgctl:71:187  mq_open:240:180
mq_unlink:241:181  inotify_init:253:-  inotify_init1:294:26  inotify_add_watch:254:27
fanotify_init:300:262  fanotify_mark:301:263  clock_settime:227:112  settimeofday:164:170
adjtimex:159:171  clock_adjtime:305:266  setuid:105:146  setgid:106:144  setreuid:113:145
setregid:114:143  setresuid:117:147  setresgid:119:149  setgroups:116:159  setfsuid:122:151
setfsgid:123:152  capset:126:91  capget:125:90  sethostname:170:161  setdomainname:171:162  acct:163:89
quotactl:179:60  syslog:103:116  setpriority:141:140  sched_setscheduler:144:119  sched_setparam:142:118
sched_setattr:314:274  sched_setaffinity:203:122  ioprio_set:251:30  rt_sigqueueinfo:129:138
rt_tgsigqueueinfo:297:240  pidfd_open:434:434  pidfd_send_signal:424:424  pidfd_getfd:438:438
process_madvise:440:440  process_mrelease:448:448  mknod:133:-  mknodat:259:33  chown:92:-  fchown:93:55
lchown:94:-  fchownat:260:54  setxattr:188:5  lsetxattr:189:6  fsetxattr:190:7  removexattr:197:14
name_to_handle_at:303:264  open_by_handle_at:304:265  lookup_dcookie:212:18  vhangup:153:58  iopl:172:-
ioperm:173:-  modify_ldt:154:-  seccomp:317:277  landlock_create_ruleset:444:444
landlock_add_rule:445:445  landlock_restrict_self:446:446  sendmmsg:307:269  recvmmsg:299:243
vmsplice:278:75  mbind:237:235  set_mempolicy:238:237  migrate_pages:256:238  move_pages:279:239
mlockall:151:230  remap_file_pages:216:234
"""
"""Calls that are refused, for their names in reports. A call that no table names is refused, too."""


def read_numbers(table: str, machine: str) -> dict[str, int]:
    """Return the numbers of the calls in ``table`` on ``machine``, by name.

    Raises:
        KeyError: the architecture is unknown.
    """
    column = {"x86_64": 1, "aarch64": 2}[machine]
    rows = (entry.split(":") for entry in table.split())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
