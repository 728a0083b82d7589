"""The words that C libraries and shells print for a signal (strsignal(3)), in the languages of common locales.

From the message catalogs of glibc 2.36 and bash 5.2. A text that is not here is an unknown signal, no other one.
"""

from __future__ import annotations

import re

from ftforensics.model.signals import signal_number

# signal: C, de, fr, es, it, pt, ru, pl, ja, ko, zh_CN, zh_TW; glibc's word first, then bash's own where it differs.
_WORDS = {
    4: "Illegal instruction|Ungültiger Maschinenbefehl|Instruction non permise|Instruction incorrecte|"
    "Instrucción ilegal|Istruzione non consentita|Instrução ilegal|Недопустимая инструкция|Błędna instrukcja|"
    "不正な指定|"
    "명령어가 잘못됨|"
    "부적절한 명령|"
    "非法指令|無效指令",
    6: "Aborted|Abgebrochen|Abandon|Abortado|Annullato|Аварийный останов|Przerwane|中止|중지됨|已放弃|已中止",
    7: "Bus error|Bus-Zugriffsfehler|Bus-Fehler|Erreur du bus|Erreur de bus|Error del bus|Errore di bus|"
    "Erro no barramento|Erro do barramento|Erro de bus|Ошибка шины|Błąd szyny|バスエラー|버스 오류|总线错误|匯流排錯誤",
    8: "Floating point exception|Gleitkomma-Ausnahme|Gleitkommafehler|Exception en point flottant|"
    "Exception en virgule flottante|Excepción de coma flotante|Eccezione in virgola mobile|Exceção de ponto flutuante|"
    "Excepção de vírgula flutuante|浮動小数点例外|부동 소수점 예외|浮点数例外|浮点异常|浮點數例外",
    9: "Killed|Getötet|Abgebrochen (Killed)|Processus arrêté|Tué|Terminado (killed)|Matado|Ucciso|Morto|Morto (Killed)|"
    "Убито|Убит|Unicestwiony|強制終了|죽었음|已杀死|強制結束",
    11: "Segmentation fault|Speicherzugriffsfehler|Adressierungsfehler|Erreur de segmentation|Violación de segmento|"
    "Errore di segmentazione|Falha de segmentação|Falta de segmentação|Ошибка сегментирования|Ошибка сегментации|"
    "Naruszenie ochrony pamięci|セグメンテーションフォルト|세그멘테이션 오류|세그먼테이션 오류|段错误|"
    "程式記憶體區段錯誤",
    15: "Terminated|Beendet|Abgebrochen (Terminated)|Complété|Terminé|Terminado|Terminato|Завершено|Прерван|"
    "Zakończony|종료됨|중단됨|已终止|終止",
    1: "Hangup",
    2: "Interrupt",
    3: "Quit",
    5: "Trace/breakpoint trap",
    13: "Broken pipe",
    14: "Alarm clock",
    24: "CPU time limit exceeded",
    25: "File size limit exceeded",
    31: "Bad system call",
}
_NUMBERS = {word: number for number, words in _WORDS.items() for word in words.split("|")}
_NUMBERED = re.compile(r"(?:<?Unknown signal|signal) (\d{1,3})>?$", re.IGNORECASE)

WORDS = tuple(_NUMBERS)
"""Every text of the table."""

ALONE = frozenset({word for word, number in _NUMBERS.items() if number in (4, 7, 8, 9, 11)} | {"Aborted", "Terminated"})
"""The texts that a shell prints alone on a line when its foreground command ended so. Other languages' words for the
last two are what a job prints at its good end, too ("Terminado")."""


def signal_of(text: str) -> int | None:
    """9 for "Killed", "已杀死", "SIGKILL", "9", "signal 9"; None where the words are not known."""
    text = text.strip().rstrip(".").removeprefix("Signals.")
    if text.isdecimal() and len(text) <= 3:
        return int(text) or None
    numbered = _NUMBERED.match(text)
    if numbered:
        return int(numbered[1]) or None
    return _NUMBERS.get(text) or signal_number(text)
