"""Typical numbers of actions for each level of MiniGrid and BabyAI, known without making it.

MiniGrid: twice around the grid. BabyAI: enough for the package's bot with a detour (its longest
plan in a 5 x 5 room takes 6 of 7): max(5, 3 * room size - 8) per room, and twice that if a mission
takes two trips. Tests compare the numbers with the levels of the package.
"""

from __future__ import annotations

UNKNOWN = 100  # for a level that another version of the package, or another package, adds

LEVELS: dict[str, dict[int, str]] = {
    "MiniGrid-": {
        20: (
            "DoorKey-5x5 Dynamic-Obstacles-5x5 Dynamic-Obstacles-Random-5x5 Empty-5x5 "
            "Empty-Random-5x5 Fetch-5x5-N2 GoToDoor-5x5 KeyCorridorS3R1 LavaGapS5"
        ),
        24: (
            "DoorKey-6x6 Dynamic-Obstacles-6x6 Dynamic-Obstacles-Random-6x6 Empty-6x6 "
            "Empty-Random-6x6 Fetch-6x6-N2 GoToDoor-6x6 GoToObject-6x6-N2 KeyCorridorS3R2 "
            "LavaGapS6 PutNear-6x6-N2"
        ),
        28: "KeyCorridorS3R3 LavaGapS7 MemoryS7",
        32: (
            "DistShift1 DistShift2 DoorKey-8x8 Dynamic-Obstacles-8x8 Empty-8x8 "
            "Fetch-8x8-N3 GoToDoor-8x8 GoToObject-8x8-N2 PutNear-8x8-N3"
        ),
        34: (
            "BlockedUnlockPickup ObstructedMaze-1Dl ObstructedMaze-1Dlh "
            "ObstructedMaze-1Dlhb Unlock UnlockPickup"
        ),
        36: (
            "LavaCrossingS9N1 LavaCrossingS9N2 LavaCrossingS9N3 MemoryS9 RedBlueDoors-6x6 "
            "SimpleCrossingS9N1 SimpleCrossingS9N2 SimpleCrossingS9N3"
        ),
        40: "KeyCorridorS4R3",
        44: "LavaCrossingS11N5 MemoryS11 SimpleCrossingS11N5",
        48: "RedBlueDoors-8x8",
        52: "KeyCorridorS5R3 MemoryS13 MemoryS13Random",
        64: (
            "DoorKey-16x16 Dynamic-Obstacles-16x16 Empty-16x16 KeyCorridorS6R3 "
            "ObstructedMaze-1Q ObstructedMaze-2Dl ObstructedMaze-2Dlh "
            "ObstructedMaze-2Dlhb ObstructedMaze-2Q ObstructedMaze-Full"
        ),
        68: "MemoryS17Random",
        76: "FourRooms LockedRoom Playground",
        100: (
            "MultiRoom-N2-S4 MultiRoom-N4-S5 MultiRoom-N6 WFC-DungeonMazeScaled "
            "WFC-MazeSimple WFC-ObstaclesAngular WFC-ObstaclesBlackdots "
            "WFC-ObstaclesHogs3 WFC-RoomsFabric"
        ),
    },
    "BabyAI-": {
        5: "GoToObjS4",
        7: "GoToLocalS5N2",
        10: "GoToLocalS6N2 GoToLocalS6N3 GoToLocalS6N4 GoToObjS6",
        13: "GoToLocalS7N4 GoToLocalS7N5",
        14: "PutNextLocalS5N3",
        16: (
            "GoToLocal GoToLocalS8N2 GoToLocalS8N3 GoToLocalS8N4 GoToLocalS8N5 "
            "GoToLocalS8N6 GoToLocalS8N7 GoToObj GoToRedBall GoToRedBallGrey "
            "GoToRedBallNoDists GoToRedBlueBall"
        ),
        20: "GoToObjMazeS4R2 PutNextLocalS6N4 PutNextS4N1",
        26: "PickupDist PickupDistDebug",
        28: "GoToSeqS5R2 MoveTwoAcrossS5N2 OpenRedDoor PutNextS5N1 PutNextS5N2 PutNextS5N2Carrying",
        30: "KeyCorridorS3R1",
        32: "OneRoomS8 PickupLoc PutNextLocal",
        40: "BlockedUnlockPickup PutNextS6N3 PutNextS6N3Carrying UnlockPickup UnlockPickupDist",
        45: "GoToObjMazeS4",
        52: "PutNextS7N4 PutNextS7N4Carrying",
        56: "MiniBossLevel OneRoomS12",
        60: "KeyCorridorS3R2 UnlockToUnlock",
        63: "GoToObjMazeS5",
        64: "MoveTwoAcrossS8N9",
        80: "OneRoomS16",
        84: "SynthS5R2",
        90: "GoToObjMazeS6 KeyCorridorS3R3 KeyCorridorS4R3",
        104: "OneRoomS20",
        117: "GoToDoor GoToObjMazeS7",
        126: "FindObjS5 KeyCorridorS5R3",
        144: "GoTo GoToImpUnlock GoToObjDoor GoToObjMaze GoToObjMazeOpen GoToOpen GoToSeq",
        180: (
            "FindObjS6 KeyCorridor KeyCorridorS6R3 OpenDoorsOrderN2 OpenDoorsOrderN2Debug "
            "OpenDoorsOrderN4 OpenDoorsOrderN4Debug OpenRedBlueDoors "
            "OpenRedBlueDoorsDebug OpenTwoDoors PickupAbove"
        ),
        234: "ActionObjDoor FindObjS7",
        288: (
            "BossLevel BossLevelNoUnlock KeyInBox Open OpenDoor OpenDoorColor "
            "OpenDoorDebug OpenDoorLoc Pickup Synth SynthLoc SynthSeq UnblockPickup "
            "Unlock UnlockLocal UnlockLocalDist"
        ),
    },
}

TURNS = {
    f"{prefix}{name}": turns
    for prefix, levels in LEVELS.items()
    for turns, names in levels.items()
    for name in names.split()
}
