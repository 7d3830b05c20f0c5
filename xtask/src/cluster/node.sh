# Makes fresh namespaces look like a machine of their own. Arguments: the cluster's directory, the directory with
# Kubernetes' programs, the node's name, the tag of its addresses. Runs as the first process and becomes the one that stays.
set -eu

# The word to go on comes when this process is on record; an end of input means that nobody wants it any more.
read -r _

# Volumes that share mounts between containers need this.
mount --make-rshared /
echo "$3" >/proc/sys/kernel/hostname
# Of this network alone: packets pass between the pods and the machine.
echo 1 >/proc/sys/net/ipv4/ip_forward

# Both directories get short names that do not depend on where they are: a socket's path must not be long.
# Done before anything is hidden, as the directories may be below what is.
run=$1/node/run
mount -t tmpfs -o mode=755 tmpfs "$run"
mkdir "$run/cluster" "$run/kubernetes" "$run/kernel" "$run/lock"
mount --bind "$1" "$run/cluster"
mount --bind "$2" "$run/kubernetes"

mount --rbind "$run" /run
mount --bind /run/cluster/node/var/lib /var/lib
mount --bind /run/cluster/node/var/log /var/log

# The kubelet wants these settings and would change them for the whole machine. Here it finds them as it likes them.
while read -r setting value; do
  file=/run/kernel/$(basename "$setting")
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$setting"
done <<END
kernel/keys/root_maxbytes 25000000
kernel/keys/root_maxkeys 1000000
kernel/panic 10
kernel/panic_on_oops 1
vm/overcommit_memory 1
vm/panic_on_oom 0
END

# The arguments are for whoever looks for a node whose record was lost.
exec /run/cluster/pause "$3" "$4" "$1"
