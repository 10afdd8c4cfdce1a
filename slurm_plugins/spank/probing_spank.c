/*
 * SPANK plugin of Probing Cluster: puts the probe's environment into every task, and nothing else.
 *
 *   plugstack.conf:  optional /usr/lib/.../probing.so probe_dir=DIR page_base=DIR [default=on|off|live]
 *   sbatch, srun, salloc:  --probing=on|off|live   --probing-run=KEY   --probing-on-hang=tell|requeue
 *
 * probe_dir   root-owned directory that goes to the front of PYTHONPATH, once
 * page_base   where the agent makes <job id>/ for the probe's pages; %n in it is the node's name
 *
 * Who decides, strongest first: --probing, the variable PROBING, the file ~/.probing-off, the site's default. A task
 * is given the default as PROBING_DEFAULT: a job that it submits inherits its variables, and nobody has asked there.
 * The run key travels to the tasks as PROBING_RUN_KEY and to the Prolog as SPANK_PROBING_RUN_KEY (job control
 * environment), so that the agent can tell which logical training a job belongs to.
 *
 * With --export=NONE or a list, only variables that begin with SLURM_ travel, and sbatch leaves out the options of plugins,
 * too (seen on 22.05). So what was wished travels once more under the names that sbatch itself gives to the job control
 * environment.
 *
 * Every function returns success: a job never fails because of us. Only a misspelt option is refused, where the
 * user can see it, at submission. Every symbol that Slurm does not look up is static: a global called `opt` would be
 * replaced by sbatch's own.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(probing, 1)

#define MAX_VALUE 131072 /* Linux refuses a longer environment string */
#define MAX_KEY 128
#define WISH_TRAVELS "SLURM_SPANK_PROBING"
#define KEY_TRAVELS "SLURM_SPANK_PROBING_RUN_KEY"

/* LIVE: on, and the processes answer their owner's questions (probing-ctl eval) */
enum wish { UNSAID, ON, OFF, LIVE };

static enum wish asked = UNSAID;
static enum wish site = ON;
static char run_key[MAX_KEY + 1];
static char on_hang[16];
static char probe_dir[4096];
static char page_base[4096];

static enum wish wish_of(const char *word)
{
	if (word == NULL)
		return UNSAID;
	if (!strcasecmp(word, "on") || !strcasecmp(word, "yes") || !strcasecmp(word, "true") || !strcmp(word, "1"))
		return ON;
	if (!strcasecmp(word, "off") || !strcasecmp(word, "no") || !strcasecmp(word, "false") || !strcmp(word, "0"))
		return OFF;
	if (!strcasecmp(word, "live"))
		return LIVE;
	return UNSAID;
}

static const char *word_of(enum wish wish)
{
	return wish == OFF ? "off" : wish == LIVE ? "live" : "on";
}

static bool is_key(const char *text)
{
	size_t n = strlen(text);

	if (n == 0 || n > MAX_KEY)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("_.:/@+-", text[i]))
			return false;
	return true;
}

static int on_probing(int val, const char *optarg, int remote)
{
	(void)val;
	asked = wish_of(optarg);
	if (asked == UNSAID && !remote) {
		slurm_error("--probing takes on, off or live");
		return -1;
	}
	return 0;
}

static int on_probing_run(int val, const char *optarg, int remote)
{
	(void)val;
	if (optarg == NULL || !is_key(optarg)) {
		if (!remote)
			slurm_error("--probing-run takes 1 to %d letters, digits and _.:/@+-", MAX_KEY);
		return remote ? 0 : -1;
	}
	snprintf(run_key, sizeof(run_key), "%s", optarg);
	return 0;
}

static bool is_on_hang(const char *word)
{
	return word != NULL && (!strcmp(word, "tell") || !strcmp(word, "requeue"));
}

static int on_probing_on_hang(int val, const char *optarg, int remote)
{
	(void)val;
	if (!is_on_hang(optarg)) {
		if (!remote)
			slurm_error("--probing-on-hang takes tell or requeue");
		return remote ? 0 : -1;
	}
	snprintf(on_hang, sizeof(on_hang), "%s", optarg);
	return 0;
}

static struct spank_option probing_option = {
	"probing", "on|off|live", "record what this job's training steps do, to say why it failed", 1, 0, on_probing};
static struct spank_option probing_run_option = {
	"probing-run", "KEY", "name of the logical training this job is part of", 1, 0, on_probing_run};

static struct spank_option probing_on_hang_option = {
	"probing-on-hang", "tell|requeue", "what is done when this job's ranks hang and it is known why", 1, 0,
	on_probing_on_hang};

static void read_arguments(int ac, char **av)
{
	for (int i = 0; i < ac; i++) {
		if (!strncmp(av[i], "probe_dir=", 10) && av[i][10] == '/' && !strchr(av[i], ':'))
			snprintf(probe_dir, sizeof(probe_dir), "%s", av[i] + 10);
		else if (!strncmp(av[i], "page_base=", 10) && av[i][10] == '/')
			snprintf(page_base, sizeof(page_base), "%s", av[i] + 10);
		else if (!strncmp(av[i], "default=", 8))
			site = wish_of(av[i] + 8) == UNSAID ? ON : wish_of(av[i] + 8);
		else
			slurm_info("probing: argument %s in plugstack.conf is not understood", av[i]);
	}
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	read_arguments(ac, av);
	spank_option_register(sp, &probing_option);
	spank_option_register(sp, &probing_run_option);
	spank_option_register(sp, &probing_on_hang_option);
	return ESPANK_SUCCESS;
}

static bool has_opt_out_file(void)
{
	const char *home = getenv("HOME");
	char path[4096];

	if (home == NULL || snprintf(path, sizeof(path), "%s/.probing-off", home) >= (int)sizeof(path))
		return false;
	return access(path, F_OK) == 0;
}

/* In sbatch, salloc and srun, as the user: what was wished is written where job and Prolog will see it. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	enum wish wish = asked;
	const char *key = run_key[0] ? run_key : getenv("PROBING_RUN_KEY");

	(void)ac;
	(void)av;
	if (spank_remote(sp) == 1)
		return ESPANK_SUCCESS;
	if (wish == UNSAID)
		wish = wish_of(getenv("PROBING"));
	if (wish == UNSAID && has_opt_out_file())
		wish = OFF;
	if (wish != UNSAID) {
		setenv("PROBING", word_of(wish), 1);
		setenv(WISH_TRAVELS, word_of(wish), 1);
		spank_job_control_setenv(sp, "PROBING", word_of(wish), 1);
	} else {
		unsetenv(WISH_TRAVELS); /* of the job in which this one is submitted */
	}
	if (on_hang[0] || is_on_hang(getenv("PROBING_ON_HANG"))) {
		const char *word = on_hang[0] ? on_hang : getenv("PROBING_ON_HANG");

		spank_job_control_setenv(sp, "PROBING_ON_HANG", word, 1);
	}
	if (key != NULL && is_key(key)) {
		char copy[MAX_KEY + 1];

		snprintf(copy, sizeof(copy), "%s", key);
		setenv("PROBING_RUN_KEY", copy, 1);
		setenv(KEY_TRAVELS, copy, 1);
		spank_job_control_setenv(sp, "PROBING_RUN_KEY", copy, 1);
	} else {
		unsetenv(KEY_TRAVELS);
	}
	return ESPANK_SUCCESS;
}

/* `path` with `dir` in front and nowhere else; an empty path gets no empty element, which would mean ".". */
static void with_front(char *out, size_t size, const char *dir, const char *path)
{
	size_t used = (size_t)snprintf(out, size, "%s", dir), n = strlen(dir);

	while (*path) {
		size_t len = strcspn(path, ":");
		bool last = path[len] == '\0';

		if (len != n || strncmp(path, dir, n))
			used += (size_t)snprintf(out + used, size - used, ":%.*s", (int)len, path);
		if (last)
			return;
		path += len + 1;
		if (*path == '\0')
			snprintf(out + used, size - used, ":"); /* the path ended with an empty element: keep it */
	}
}

static void put_python_path(spank_t sp)
{
	char *before = calloc(1, MAX_VALUE), *after = calloc(1, MAX_VALUE + sizeof(probe_dir));

	if (before != NULL && after != NULL) {
		spank_err_t found = spank_getenv(sp, "PYTHONPATH", before, MAX_VALUE);

		if (found == ESPANK_ENV_NOEXIST)
			before[0] = '\0';
		/* What could not be read whole is left as it is. */
		if (found == ESPANK_SUCCESS || found == ESPANK_ENV_NOEXIST) {
			with_front(after, MAX_VALUE + sizeof(probe_dir), probe_dir, before);
			if (strlen(after) + sizeof("PYTHONPATH=") < MAX_VALUE)
				spank_setenv(sp, "PYTHONPATH", after, 1);
		}
	}
	free(before);
	free(after);
}

/* <page_base>/<job id>, with the node's name for %n; false when that name is not known */
static bool page_path(spank_t sp, char *out, size_t size, unsigned long job_id)
{
	const char *mark = strstr(page_base, "%n");
	char node[256] = "";

	if (mark == NULL)
		return snprintf(out, size, "%s/%lu", page_base, job_id) < (int)size;
	if (spank_getenv(sp, "SLURMD_NODENAME", node, sizeof(node)) != ESPANK_SUCCESS)
		return false;
	return snprintf(out, size, "%.*s%s%s/%lu", (int)(mark - page_base), page_base, node, mark + 2, job_id) <
	       (int)size;
}

/*
 * The Prolog made the directory under the id of this node's part of the job. In a heterogeneous job Slurm tells
 * every task the leader's id, so the part is the one whose directory is here.
 */
static void put_page_dir(spank_t sp)
{
	char path[sizeof(page_base) + 512], name[64], word[32];
	unsigned long parts = 0;
	uint32_t job_id = 0;

	if (page_base[0] == '\0' || spank_get_item(sp, S_JOB_ID, &job_id) != ESPANK_SUCCESS)
		return;
	if (spank_getenv(sp, "SLURM_HET_SIZE", word, sizeof(word)) == ESPANK_SUCCESS)
		parts = strtoul(word, NULL, 10);
	for (unsigned long part = 0; part < parts && part < 1024; part++) {
		snprintf(name, sizeof(name), "SLURM_JOB_ID_HET_GROUP_%lu", part);
		if (spank_getenv(sp, name, word, sizeof(word)) != ESPANK_SUCCESS)
			continue;
		if (page_path(sp, path, sizeof(path), strtoul(word, NULL, 10)) && access(path, F_OK) == 0) {
			spank_setenv(sp, "PROBING_PAGE_DIR", path, 1);
			return;
		}
	}
	if (page_path(sp, path, sizeof(path), job_id))
		spank_setenv(sp, "PROBING_PAGE_DIR", path, 1);
}

/* What torch's flight recorder was told to write into another job's page directory, by the probe in that job. */
static void drop_inherited(spank_t sp, const char *name)
{
	static const char end[] = "/fr_rank_";
	char value[sizeof(page_base) + 512];
	size_t n = strcspn(page_base, "%"), used;

	if (n == 0 || spank_getenv(sp, name, value, sizeof(value)) != ESPANK_SUCCESS)
		return;
	used = strlen(value);
	if (!strncmp(value, page_base, n) && used >= sizeof(end) && !strcmp(value + used - (sizeof(end) - 1), end))
		spank_unsetenv(sp, name);
}

/* In slurmstepd, as the user, once for every task, the batch script's included. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	enum wish wish = asked;
	char word[16] = "", key[MAX_KEY + 1] = "";
	bool by_default;

	(void)ac;
	(void)av;
	drop_inherited(sp, "TORCH_FR_DUMP_TEMP_FILE");
	drop_inherited(sp, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
	if (wish == UNSAID && spank_getenv(sp, "PROBING", word, sizeof(word)) == ESPANK_SUCCESS)
		wish = wish_of(word);
	if (wish == UNSAID && spank_getenv(sp, WISH_TRAVELS, word, sizeof(word)) == ESPANK_SUCCESS)
		wish = wish_of(word);
	by_default = wish == UNSAID;
	if (by_default)
		wish = site;
	if (run_key[0])
		spank_setenv(sp, "PROBING_RUN_KEY", run_key, 1);
	else if (spank_getenv(sp, KEY_TRAVELS, key, sizeof(key)) == ESPANK_SUCCESS && is_key(key))
		spank_setenv(sp, "PROBING_RUN_KEY", key, 0); /* one that the user exports stands */
	spank_setenv(sp, by_default ? "PROBING_DEFAULT" : "PROBING", word_of(wish), 1);
	if (wish == OFF || probe_dir[0] == '\0') {
		/* A step that says off inside a job that says on inherits the job's. */
		spank_unsetenv(sp, "PROBING_PAGE_DIR");
		return ESPANK_SUCCESS;
	}
	put_page_dir(sp);
	put_python_path(sp);
	return ESPANK_SUCCESS;
}
